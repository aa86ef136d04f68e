//! Endpoints that a probe sends requests to: the load balancer, and each server.

use std::sync::Arc;

use tokio::sync::watch;

use crate::client::{AdminClient, AdminRequest, AdminResponse, ClientError};
use crate::lab::LabHandle;
use crate::status::Phase;
use crate::supervisor::ProcessTable;

/// Returns all endpoints of a lab, the load balancer first.
pub(super) fn all_endpoints(lab: &LabHandle) -> Vec<ProbeEndpoint> {
    let servers = lab.clients.iter().enumerate();
    let direct = servers.map(|(at, client)| ProbeEndpoint {
        client: client.clone(),
        server: Some((at, lab.supervisor.process_table())),
    });
    std::iter::once(ProbeEndpoint { client: lab.load_balancer.clone(), server: None }).chain(direct).collect()
}

/// The load balancer, or a server that is used only while it is ready.
#[derive(Clone, Debug)]
pub(super) struct ProbeEndpoint {
    pub(super) client: AdminClient,
    server: Option<(usize, watch::Receiver<Arc<ProcessTable>>)>,
}

impl ProbeEndpoint {
    /// Process generation that would respond, 0 for the load balancer; `None` if the server is not ready.
    pub(super) fn ready_generation(&self) -> Option<u64> {
        let Some((at, process_table)) = &self.server else { return Some(0) };
        let process_table = process_table.borrow();
        let process = &process_table.servers[*at];
        (process.phase == Phase::Ready).then_some(process.generation)
    }

    /// Sends the request; `None` if the server was not ready throughout, so that the response proves nothing.
    pub(super) async fn request_while_ready(
        &self,
        request: AdminRequest,
    ) -> Option<Result<AdminResponse, ClientError>> {
        let before = self.ready_generation()?;
        let answer = self.client.request(request).await;
        (self.ready_generation() == Some(before)).then_some(answer)
    }

    pub(super) fn is_load_balancer(&self) -> bool {
        self.server.is_none()
    }
}
