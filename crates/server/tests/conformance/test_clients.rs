//! The clients of a random test. They disconnect and reconnect as its steps say and keep
//! their state while they are disconnected.

use innkeeper_testkit::Observer;

use crate::stage_host::StageHost;

/// The names and protocol versions of the clients.
pub(crate) const CLIENTS: [(&str, &str); 3] = [("ann", "1.0.0"), ("ben", "0.9.0"), ("cat", "1.0.0")];

/// All clients of a random test, each with whether it is connected.
pub(crate) struct TestClients(Vec<(Observer, bool)>);

impl TestClients {
    pub(crate) async fn connect(host: &StageHost) -> Self {
        let mut clients = Vec::new();
        for (name, version) in CLIENTS {
            clients.push((Observer::connect_small(host.address(), name, &[version]).await.unwrap(), true));
        }
        Self(clients)
    }

    /// A client, connected or not.
    pub(crate) fn get(&self, index: usize) -> &Observer {
        &self.0[index].0
    }

    /// A client, if it is connected.
    pub(crate) fn connected(&self, index: usize) -> Option<&Observer> {
        self.0.get(index).and_then(|(client, connected)| connected.then_some(client))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Observer> {
        self.0.iter().map(|(client, _)| client)
    }

    pub(crate) fn all_connected(&mut self) -> impl Iterator<Item = &mut Observer> {
        self.0.iter_mut().filter_map(|(client, connected)| connected.then_some(client))
    }

    /// The names of the disconnected clients.
    pub(crate) fn disconnected(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().zip(CLIENTS).filter(|((_, connected), _)| !connected).map(|(_, (name, _))| name)
    }

    pub(crate) async fn disconnect(&mut self, index: usize) {
        let (client, connected) = &mut self.0[index];
        if std::mem::take(connected) {
            client.client.shutdown().await;
        }
    }

    pub(crate) async fn disconnect_all(&mut self) {
        for index in 0..self.0.len() {
            self.disconnect(index).await;
        }
    }

    /// Records that the host has closed all connections.
    pub(crate) fn mark_all_disconnected(&mut self) {
        for (_, connected) in &mut self.0 {
            *connected = false;
        }
    }

    pub(crate) async fn reconnect(&mut self, index: usize, host: &StageHost) {
        let (client, connected) = &mut self.0[index];
        if !*connected {
            client.reconnect(host.address(), CLIENTS[index].0).await.unwrap();
            *connected = true;
        }
    }

    pub(crate) async fn reconnect_all(&mut self, host: &StageHost) {
        for index in 0..self.0.len() {
            self.reconnect(index, host).await;
        }
    }

    /// Waits until the host has handled everything that connected clients have sent.
    pub(crate) async fn settle(&mut self) {
        for client in self.all_connected() {
            client.settle().await.unwrap();
        }
    }
}
