//! Tests of changes that wait for others.

use super::*;

impl FakeNode {
    fn shut(&self, shut: bool) {
        *self.shut.0.lock() = shut;
        self.shut.1.notify_all();
    }

    fn begun(&self) -> Vec<String> {
        let name = |change: &BucketChange| match change {
            BucketChange::Drop(name) => name.clone(),
            other => format!("{other:?}"),
        };
        self.begun.borrow().iter().map(name).collect()
    }
}

impl Served {
    /// Sends a request to drop a bucket.
    async fn drop_bucket(&self, name: &str) -> io::Result<TcpStream> {
        let authorization = credentials("Administrator:pass:word");
        let path = format!("/pools/default/buckets/{name}");
        let head = format!(
            "DELETE {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {authorization}\r\n\r\n"
        );
        let mut client = TcpStream::connect(self.address).await?;
        client.write_all(head.as_bytes()).await?;
        Ok(client)
    }

    /// Waits until the node has looked at all earlier requests.
    async fn look_around(&self) -> io::Result<()> {
        for _ in 0..3 {
            let mut client = TcpStream::connect(self.address).await?;
            let ask = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n";
            client.write_all(ask).await?;
            read_until(&mut client, "ok\n").await?;
        }
        Ok(())
    }
}

async fn status(client: &mut TcpStream) -> io::Result<String> {
    let mut head = [0; "HTTP/1.1 200".len()];
    client.read_exact(&mut head).await?;
    Ok(String::from_utf8_lossy(&head[head.len() - 3..]).into_owned())
}

#[tokio::test]
async fn changes_of_clients_that_left_are_not_carried_out() -> io::Result<()> {
    let served = served().await?;
    served.node.shut(true);
    let mut first = served.drop_bucket("first").await?;
    let mut begun = served.node.begun.subscribe();
    let one = begun.wait_for(|begun| begun.len() == 1);
    time::timeout(DEADLINE, one)
        .await?
        .map_err(io::Error::other)?;
    let mut leaving = Vec::new();
    for number in 0..20 {
        leaving.push(served.drop_bucket(&format!("leaving-{number}")).await?);
    }
    served.look_around().await?;
    let mut last = served.drop_bucket("last").await?;
    drop(leaving);
    served.look_around().await?;
    served.node.shut(false);
    assert_eq!(status(&mut first).await?, "404");
    assert_eq!(status(&mut last).await?, "404");
    assert_eq!(served.node.begun(), ["first", "last"]);
    Ok(())
}

#[tokio::test]
async fn changes_that_wait_are_refused_when_the_node_stops() -> io::Result<()> {
    let served = served().await?;
    served.node.shut(true);
    let _first = served.drop_bucket("first").await?;
    let mut begun = served.node.begun.subscribe();
    let one = begun.wait_for(|begun| begun.len() == 1);
    time::timeout(DEADLINE, one)
        .await?
        .map_err(io::Error::other)?;
    let mut waiting = Vec::new();
    for number in 0..20 {
        waiting.push(served.drop_bucket(&format!("waiting-{number}")).await?);
    }
    served.look_around().await?;
    served.stop.send_replace(true);
    for client in &mut waiting {
        assert_eq!(status(client).await?, "503");
    }
    served.node.shut(false);
    time::timeout(DEADLINE, served.task).await??;
    assert_eq!(served.node.begun(), ["first"]);
    Ok(())
}
