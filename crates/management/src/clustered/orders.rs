//! Orders of operators, as the forms of tools send them.

use std::time::Duration;

use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use cluster::coordinator::unsafe_order;
use cluster::{NodeId, Order};
use registry::{ClusterStatus, NodeStatus};
use serde_json::{Value, json};
use tokio::{task, time};

use super::forms;
use super::request::ClusterRequest;
use crate::answers::{self, HandlerResult};
use crate::form::{Form, field};
use crate::tools::only;

/// Time limit for the controller to follow an order, and interval between two looks.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(5);

const JOINS: &str =
    "A node joins by itself: settee serve --cluster etcd://HOST:2379/NAME --node-name NAME";

/// Checks whether a path is an order.
pub(super) fn is_one(path: &str) -> bool {
    matches!(
        path,
        "/controller/rebalance"
            | "/controller/stopRebalance"
            | "/controller/failOver"
            | "/controller/startGracefulFailover"
            | "/controller/reAddNode"
            | "/controller/setRecoveryType"
            | "/controller/ejectNode"
            | "/controller/addNode"
            | "/node/controller/doJoinCluster"
            | "/settings/autoFailover"
    )
}

/// Checks whether an order has taken effect.
type Followed = fn(&ClusterStatus, &NodeStatus) -> bool;

fn state_of<'a>(now: &'a ClusterStatus, node: &NodeStatus) -> Option<&'a str> {
    let mut nodes = now.nodes.iter();
    nodes.find(|one| one.id == node.id).map(|one| &*one.state)
}

impl ClusterRequest {
    pub(super) async fn order(self, path: &str, body: &[u8]) -> HandlerResult {
        match path {
            "/controller/rebalance" => self.rebalance(body).await,
            "/controller/stopRebalance" => {
                self.give(Order::Cancel, |now| now.rebalance == "idle")
                    .await
            }
            "/controller/failOver" => {
                let mut form = Form::new(body);
                let unsafely = form.flag("allowUnsafe", false);
                answers::check_fields(&form.wrong)?;
                if unsafely {
                    return self.fail_over_unsafely(body).await;
                }
                let failed_over: Followed = |now, node| state_of(now, node) == Some("failed_over");
                self.of_node(body, Order::FailOver, failed_over).await
            }
            "/controller/startGracefulFailover" => self.fail_over_gracefully(body).await,
            "/controller/reAddNode" => self.add_again(body).await,
            "/controller/setRecoveryType" => {
                self.named(body).map_err(|reason| refused(&reason))?;
                match field(body, "recoveryType").as_deref() {
                    Some("delta") => Ok(StatusCode::OK.into_response()),
                    _ => Err(refused(
                        "A node that comes back fetches what it lacks (delta); with an empty data directory it is another node",
                    )),
                }
            }
            "/controller/ejectNode" => {
                let node = self.named(body).map_err(|reason| refused(&reason))?;
                if node.active + node.replicas > 0 {
                    let reason = "The node has copies: rebalance with it among ejectedNodes, or settee cluster drain";
                    return Err(refused(reason));
                }
                let gone: Followed = |now, node| state_of(now, node).is_none();
                self.of_node(body, Order::Remove, gone).await
            }
            "/settings/autoFailover" => {
                let fixed = self.auto_failover();
                let timeout = fixed["timeout"].to_string();
                let most = fixed["maxCount"].to_string();
                let taken = [
                    ("enabled", "true"),
                    ("timeout", &*timeout),
                    ("maxCount", &*most),
                ];
                let reason = "How soon a node is failed over, and how often, is fixed";
                Ok(only(body, &taken, reason))
            }
            _ => Err(refused(JOINS)),
        }
    }

    fn named(&self, body: &[u8]) -> Result<&NodeStatus, String> {
        forms::node(&self.status.nodes, body, "otpNode")
    }

    async fn of_node(
        &self,
        body: &[u8],
        order: fn(NodeId) -> Order,
        done: Followed,
    ) -> HandlerResult {
        let node = self.named(body).map_err(|reason| refused(&reason))?;
        self.give(order(NodeId(node.id)), |now| done(now, node))
            .await
    }

    /// Starts a graceful failover: other nodes take over the active copies first. It continues after the answer.
    async fn fail_over_gracefully(&self, body: &[u8]) -> HandlerResult {
        let node = self.named(body).map_err(|reason| refused(&reason))?;
        if !node.can_hand_over {
            let reason =
                "The node is no member that runs, or no other copy of some vBucket can take over";
            return Err(refused(reason));
        }
        let begun: Followed =
            |now, node| matches!(state_of(now, node), Some("handing_over" | "failed_over"));
        self.of_node(body, Order::FailOverGracefully, begun).await
    }

    /// Adds a node that was failed over: the node recovers by itself, and then it becomes a member again.
    async fn add_again(&self, body: &[u8]) -> HandlerResult {
        let node = self.named(body).map_err(|reason| refused(&reason))?;
        if node.state == "failed" {
            let reason = "The node has not come back: start it first";
            return Err(refused(reason));
        }
        if node.state == "failed_over" {
            let back: Followed =
                |now, node| !matches!(state_of(now, node), Some("failed_over" | "failed"));
            self.of_node(body, Order::Recover, back).await?;
        }
        let active: Followed = |now, node| state_of(now, node) == Some("active");
        self.of_node(body, Order::Recover, active).await
    }

    /// Fails a node over even if too few copies are left.
    async fn fail_over_unsafely(&self, body: &[u8]) -> HandlerResult {
        let node = self.named(body).map_err(|reason| refused(&reason))?;
        let order = unsafe_order(&self.member.view(), NodeId(node.id));
        let done = |now: &ClusterStatus| {
            let mut nodes = now.nodes.iter().filter(|one| one.id == node.id);
            let left = |one: &NodeStatus| {
                now.epoch == self.status.epoch && !one.unsafe_failover.is_empty()
            };
            nodes.all(|one| one.state == "failed_over" && !left(one))
        };
        self.give(order, done).await
    }

    /// Starts a rebalance. The caller must name all nodes; the ejected ones are drained.
    async fn rebalance(&self, body: &[u8]) -> HandlerResult {
        let listed = |name| forms::nodes(&self.status.nodes, body, name);
        let known = listed("knownNodes").map_err(|_| mismatch())?;
        let ejected = listed("ejectedNodes").map_err(|reason| refused(&reason))?;
        let all = self.status.nodes.iter();
        if !all
            .clone()
            .all(|node| known.iter().any(|one| one.id == node.id))
        {
            return Err(mismatch());
        }
        let stay = |node: &&NodeStatus| !ejected.iter().any(|one| one.id == node.id);
        if !all.clone().filter(stay).any(|node| node.alive) {
            return Err(refused("A node that runs must stay"));
        }
        for node in ejected {
            let drained: Followed = |now, node| state_of(now, node) != Some("active");
            self.give(Order::Drain(NodeId(node.id)), |now| drained(now, node))
                .await?;
        }
        let begun = |now: &ClusterStatus| now.rebalance_began_after(&self.status);
        self.give(Order::Rebalance, begun).await
    }

    /// Sends an order, and waits for a limited time until the controller has followed it.
    async fn give(&self, order: Order, done: impl Fn(&ClusterStatus) -> bool) -> HandlerResult {
        let member = std::sync::Arc::clone(&self.member);
        let given = task::spawn_blocking(move || member.order(order)).await;
        let given = given.unwrap_or_else(|_| Err("the order was cut short".into()));
        given.map_err(|reason| answers::refusal(StatusCode::SERVICE_UNAVAILABLE, &reason))?;
        let followed = async {
            while !done(&ClusterStatus::of(&*self.member)) {
                time::sleep(LOOK).await;
            }
        };
        if time::timeout(PATIENCE, followed).await.is_err() {
            let reason = "The order was given, and the cluster has not followed it yet";
            return Err(answers::refusal(StatusCode::SERVICE_UNAVAILABLE, reason));
        }
        Ok(StatusCode::OK.into_response())
    }

    /// Returns the settings of automatic failover in force: the timeout in seconds, and the number of failovers until
    /// an operator resets the count.
    pub(super) fn auto_failover(&self) -> Value {
        let settings = self.member.view().settings();
        json!({
            "enabled": true,
            "timeout": settings.lease_ms / 1000,
            "count": self.status.failovers,
            "maxCount": settings.failovers_max,
        })
    }
}

fn refused(reason: &str) -> Response {
    answers::refusal(StatusCode::BAD_REQUEST, reason)
}

/// Returns the answer to a caller whose list of nodes is wrong.
fn mismatch() -> Response {
    answers::json(StatusCode::BAD_REQUEST, &json!({ "mismatch": 1 }))
}
