use super::*;

#[test]
fn durability_with_and_without_a_timeout() {
    let infos = RequestInfos::parse(&[0x13, 1, 0x0b, 0xb8]).unwrap();
    let durability = Durability {
        level: DurabilityLevel::Majority,
        timeout_ms: Some(3000),
    };
    assert_eq!(infos.durability, Some(durability));
    let infos = RequestInfos::parse(&[0x11, 3]).unwrap();
    let durability = Durability {
        level: DurabilityLevel::PersistToMajority,
        timeout_ms: None,
    };
    assert_eq!(infos.durability, Some(durability));
}

#[test]
fn parse_refuses_bad_durability() {
    for section in [
        &[0x11, 0][..],
        &[0x11, 4],
        &[0x13, 1, 0, 0],
        &[0x13, 1, 0xff, 0xff],
    ] {
        assert_eq!(
            RequestInfos::parse(section),
            Err(InfoError::DurabilityLevel),
            "{section:?}"
        );
    }
    for section in [&[0x10][..], &[0x12, 1, 1], &[0x14, 1, 1, 1, 1]] {
        let error = RequestInfos::parse(section).unwrap_err();
        assert_eq!(error.status(), Status::EINVAL, "{section:?}");
    }
}

#[test]
fn other_infos_round_trip() {
    let section = [
        0x00, 0x22, 0x01, 0x02, 0x43, b'^', b'm', b'e', 0x50, 0x64, b'R', b'e', b'a', b'd', 0x61,
        b'X', 0x72, 0, 9,
    ];
    let infos = RequestInfos::parse(&section).unwrap();
    assert!(infos.barrier && infos.preserve_ttl);
    assert_eq!(infos.stream_id, Some(0x0102));
    assert_eq!(infos.impersonate, Some(b"^me".as_slice()));
    assert_eq!(infos.auth_token_id, Some(9));
    let names: Vec<&[u8]> = infos.extra_privileges.iter().collect();
    assert_eq!(names, [b"Read".as_slice(), b"X"]);
    let mut out = Vec::new();
    infos.encode(&mut out).unwrap();
    assert_eq!(out, section);
}

#[test]
fn parse_refuses_bad_infos() {
    let unknown = [
        (&[0x30][..], 3),
        (&[0x80], 8),
        (&[0xf0, 0], 15),
        (&[0xf0, 255], 270),
    ];
    for (section, id) in unknown {
        assert_eq!(
            RequestInfos::parse(section),
            Err(InfoError::Unknown(id)),
            "{section:?}"
        );
    }
    let malformed: [&[u8]; 9] = [
        &[0x01, 0],
        &[0x21, 0],
        &[0x23, 0, 0, 0],
        &[0x40],
        &[0x51, 0],
        &[0x71, 0],
        &[0x13, 1, 0],
        &[0xf0],
        &[0x4f],
    ];
    for section in malformed {
        let error = RequestInfos::parse(section).unwrap_err();
        assert_eq!(error.status(), Status::EINVAL, "{section:?}");
    }
}

#[test]
fn escaped_lengths_and_ids() {
    for len in [1, 14, 15, 16, 200, 270] {
        let user = vec![b'u'; len];
        let infos = RequestInfos {
            impersonate: Some(&user),
            ..RequestInfos::default()
        };
        let mut section = Vec::new();
        infos.encode(&mut section).unwrap();
        let head = if len < 15 { 1 } else { 2 };
        assert_eq!(section.len(), head + len);
        assert_eq!(RequestInfos::parse(&section), Ok(infos));
    }
    let mut out = Vec::new();
    encode_info(16, &[7; 15], &mut out).unwrap();
    assert_eq!(&out[..3], [0xff, 1, 0], "the id's escape comes first");
    assert_eq!(
        encode_info(271, &[], &mut out),
        Err(TooLong {
            part: "frame infos"
        })
    );
    assert_eq!(
        encode_info(0, &[0; 271], &mut out),
        Err(TooLong {
            part: "frame infos"
        })
    );
    assert_eq!(out.len(), 18, "nothing was written");
}

#[test]
fn an_escaped_form_of_a_short_info_is_accepted() {
    let section = [
        0x4f, 0, b'a', b'b', b'c', b'd', b'e', b'f', b'g', b'h', b'i', b'j', b'k', b'l', b'm',
        b'n', b'o',
    ];
    let infos = RequestInfos::parse(&section).unwrap();
    assert_eq!(infos.impersonate, Some(b"abcdefghijklmno".as_slice()));
}

#[test]
fn check_refuses_opcodes_without_the_info() {
    use crate::Opcode;
    let durable = RequestInfos::parse(&[0x11, 1]).unwrap();
    let keeping = RequestInfos::parse(&[0x50]).unwrap();
    assert_eq!(durable.check(Opcode::SET.info().unwrap()), Ok(()));
    assert_eq!(keeping.check(Opcode::SET.info().unwrap()), Ok(()));
    let refused = durable.check(Opcode::GET.info().unwrap()).unwrap_err();
    assert_eq!(refused.status(), Status::EINVAL);
    let refused = keeping.check(Opcode::ADD.info().unwrap()).unwrap_err();
    assert_eq!(refused.status(), Status::NOT_SUPPORTED);
}
