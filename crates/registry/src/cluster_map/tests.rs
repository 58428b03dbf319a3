use serde_json::{Value, json};

use super::*;

const NODE: NodeAddress<'_> = NodeAddress {
    host: HOST_PLACEHOLDER,
    this_node: true,
    group: SERVER_GROUP,
    kv_port: Some(11210),
    http_port: 8091,
    tls: TlsPorts {
        kv: None,
        http: None,
    },
    stand_ins: StandInPorts {
        query: None,
        search: None,
        index: None,
    },
    external: None,
};

const ALONE: Row = [0, -1, -1, -1];

fn travel() -> BucketMap<'static> {
    BucketMap {
        name: "travel",
        uuid: "5f6a00112233445566778899aabbccdd",
        revision: MapRevision { epoch: 1, rev: 7 },
        replicas: 0,
        manifest_uid: 0,
        capabilities: BUCKET_CAPABILITIES,
        nodes: &[NODE],
        rows: MapRows::Same(1024, ALONE),
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The single-node example of the specification, without the capabilities that are not served.
#[test]
fn bucket_config_is_the_example() {
    let text = bucket_config(&travel());
    let uuid = travel().uuid;
    let head = format!(
        "{{\"rev\":7,\"revEpoch\":1,\"name\":\"travel\",\"nodeLocator\":\"vbucket\",\
         \"uuid\":\"{uuid}\",\"uri\":\"/pools/default/buckets/travel?bucket_uuid={uuid}\",\
         \"streamingUri\":\"/pools/default/bucketsStreaming/travel?bucket_uuid={uuid}\",\
         \"bucketCapabilitiesVer\":\"\",\"bucketCapabilities\":[\"collections\",\"durableWrite\",\"cbhello\",\
         \"cccp\",\"nodesExt\",\"touch\",\"preserve_expiry\",\"preserveExpiry\",\"xattr\",\
         \"tombstonedUserXAttrs\",\"subdoc.AccessDeleted\",\"subdoc.BinaryXattr\",\
         \"subdoc.DocumentMacroSupport\",\"subdoc.ReplaceBodyWithXattr\",\
         \"subdoc.ReplicaRead\",\"subdoc.ReviveDocument\"],\
         \"collectionsManifestUid\":\"0\",\"clusterCapabilitiesVer\":[1,0],\
         \"clusterCapabilities\":{{}},\"vBucketServerMap\":{{\"hashAlgorithm\":\"CRC\",\
         \"numReplicas\":0,\"serverList\":[\"$HOST:11210\"],\"vBucketMap\":["
    );
    let rows = vec!["[0]"; 1024].join(",");
    let tail = format!(
        "]}},\"nodes\":[{{\"hostname\":\"$HOST:8091\",\"ports\":{{\"direct\":11210}},\
         \"couchApiBase\":\"http://$HOST:8091/travel%2B{uuid}\"}}],\
         \"nodesExt\":[{{\"services\":{{\"kv\":11210,\"mgmt\":8091}},\"thisNode\":true,\"serverGroup\":\"Group 1\"}}]}}"
    );
    assert_eq!(text, format!("{head}{rows}{tail}"));
}

#[test]
fn a_missing_replica_is_minus_one() {
    let map = BucketMap {
        rows: MapRows::Same(2, ALONE),
        replicas: 1,
        ..travel()
    };
    let config = parse(&bucket_config(&map));
    let server_map = &config["vBucketServerMap"];
    assert_eq!(server_map["numReplicas"], 1);
    assert_eq!(server_map["vBucketMap"], json!([[0, -1], [0, -1]]));
}

#[test]
fn uids_are_hex_and_names_are_escaped() {
    let map = BucketMap {
        name: "50%_a-b.c",
        manifest_uid: 0x1f,
        ..travel()
    };
    let config = parse(&bucket_config(&map));
    assert_eq!(config["name"], "50%_a-b.c");
    assert_eq!(config["collectionsManifestUid"], "1f");
    let uri = config["uri"].as_str().unwrap();
    assert!(
        uri.starts_with("/pools/default/buckets/50%25_a-b.c?bucket_uuid="),
        "{uri}"
    );
}

#[test]
fn an_advertised_ipv6_address_has_brackets_before_a_port_only() {
    let node = NodeAddress {
        host: "fd00::7",
        this_node: true,
        group: SERVER_GROUP,
        kv_port: Some(1),
        http_port: 2,
        tls: TlsPorts::default(),
        stand_ins: StandInPorts::default(),
        external: None,
    };
    let config = parse(&bucket_config(&BucketMap {
        nodes: &[node],
        ..travel()
    }));
    assert_eq!(
        config["vBucketServerMap"]["serverList"],
        json!(["[fd00::7]:1"])
    );
    assert_eq!(config["nodes"][0]["hostname"], "[fd00::7]:2");
    assert_eq!(config["nodesExt"][0]["hostname"], "fd00::7");
}

#[test]
fn the_global_config_names_no_bucket() {
    let text = global_config(MapRevision { epoch: 1, rev: 7 }, &[NODE]);
    let expected = "{\"rev\":7,\"revEpoch\":1,\"nodesExt\":[{\"services\":{\"kv\":11210,\
                    \"mgmt\":8091},\"thisNode\":true,\"serverGroup\":\"Group 1\"}],\
                    \"clusterCapabilitiesVer\":[1,0],\"clusterCapabilities\":{}}";
    assert_eq!(text, expected);
}

/// Clients order maps by epoch, then by revision.
#[test]
fn an_epoch_outweighs_any_revision() {
    let old = MapRevision {
        epoch: 1,
        rev: i64::MAX,
    };
    assert!(MapRevision { epoch: 2, rev: 1 } > old);
    assert!(MapRevision { epoch: 1, rev: 8 } > MapRevision { epoch: 1, rev: 7 });
}

/// A feature that is not served must not be listed: clients would use it.
#[test]
fn capabilities_list_only_what_works() {
    assert!(!DISK_BUCKET_CAPABILITIES.contains(&"dcp"));
    let in_memory: Vec<_> = DISK_BUCKET_CAPABILITIES
        .iter()
        .filter(|name| !["rangeScan", "couchapi"].contains(*name))
        .collect();
    assert!(in_memory.into_iter().eq(BUCKET_CAPABILITIES));
}

#[test]
#[should_panic(expected = "empty map")]
fn a_map_without_vbuckets_is_a_bug() {
    drop(bucket_config(&BucketMap {
        rows: MapRows::Same(0, ALONE),
        ..travel()
    }));
}

/// The example of three nodes with one replica in the specification.
#[test]
fn each_vbucket_may_have_nodes_of_its_own() {
    let at = |host, group| NodeAddress {
        host,
        group,
        this_node: host == "10.0.0.2",
        ..NODE
    };
    let nodes = [
        at("10.0.0.1", "zone 1"),
        at("10.0.0.2", "zone 2"),
        at("10.0.0.3", "zone 1"),
    ];
    let rows = [
        [0, 1, NO_NODE, NO_NODE],
        [2, 0, NO_NODE, NO_NODE],
        [NO_NODE, 1, NO_NODE, NO_NODE],
        [NO_NODE; 4],
    ];
    let map = BucketMap {
        replicas: 1,
        nodes: &nodes,
        rows: MapRows::Each(&rows),
        ..travel()
    };
    let config = parse(&bucket_config(&map));
    let server_map = &config["vBucketServerMap"];
    assert_eq!(
        server_map["vBucketMap"],
        json!([[0, 1], [2, 0], [-1, 1], [-1, -1]])
    );
    assert_eq!(server_map["numReplicas"], 1);
    let expected = json!(["10.0.0.1:11210", "10.0.0.2:11210", "10.0.0.3:11210"]);
    assert_eq!(server_map["serverList"], expected);
    let global = parse(&global_config(map.revision, &nodes));
    assert_eq!(global["nodesExt"], config["nodesExt"]);
    let services = json!({ "kv": 11210, "mgmt": 8091 });
    let listed = |host, this, group| json!({ "hostname": host, "thisNode": this, "serverGroup": group, "services": services });
    let expected = json!([
        listed("10.0.0.1", false, "zone 1"),
        listed("10.0.0.2", true, "zone 2"),
        listed("10.0.0.3", false, "zone 1")
    ]);
    assert_eq!(global["nodesExt"], expected);
    assert_eq!(config["nodes"].as_array().map(Vec::len), Some(3));
}

#[test]
fn external_clients_get_the_alternate_address() {
    let external = AlternateAddress {
        hostname: "outside".into(),
        ports: [("kv".to_owned(), 31_210)].into(),
    };
    let node = NodeAddress {
        external: Some(&external),
        ..NODE
    };
    let expected = json!({ "external": { "hostname": "outside", "ports": { "kv": 31_210 } } });
    let revision = MapRevision { epoch: 1, rev: 7 };
    let global = global_config(revision, &[node]);
    for text in [
        bucket_config(&BucketMap {
            nodes: &[node],
            ..travel()
        }),
        global,
    ] {
        assert_eq!(parse(&text)["nodesExt"][0]["alternateAddresses"], expected);
    }
}

#[test]
fn stand_ins_have_the_names_that_clients_look_for() {
    let node = NodeAddress {
        stand_ins: StandInPorts {
            query: Some(8093),
            search: Some(8094),
            index: Some(8093),
        },
        ..NODE
    };
    let told = parse(&bucket_config(&BucketMap {
        nodes: &[node],
        ..travel()
    }));
    let expected =
        json!({ "kv": 11210, "mgmt": 8091, "n1ql": 8093, "fts": 8094, "indexHttp": 8093 });
    assert_eq!(told["nodesExt"][0]["services"], expected);
    let plain = parse(&bucket_config(&travel()));
    let expected = json!({ "kv": 11210, "mgmt": 8091 });
    assert_eq!(plain["nodesExt"][0]["services"], expected);
}
