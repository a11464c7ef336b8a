//! The clients of a random play: they come and go as the play wants, and know what they
//! saw also while they are away.

use innkeeper_testkit::{Observer, StageHost};

/// Their names and the protocols they speak.
pub(crate) const CLIENTS: [(&str, &str); 3] = [("ann", "1.0.0"), ("ben", "0.9.0"), ("cat", "1.0.0")];

/// All of them, with whether they are connected.
pub(crate) struct Guests(Vec<(Observer, bool)>);

impl Guests {
    pub(crate) async fn connect(host: &StageHost) -> Self {
        let mut guests = Vec::new();
        for (name, version) in CLIENTS {
            guests.push((Observer::connect_small(host.address(), name, &[version]).await.unwrap(), true));
        }
        Self(guests)
    }

    /// One of them, also if it is away.
    pub(crate) fn one(&self, who: usize) -> &Observer {
        &self.0[who].0
    }

    /// One of them, if it is connected.
    pub(crate) fn present(&self, who: usize) -> Option<&Observer> {
        self.0.get(who).and_then(|(client, connected)| connected.then_some(client))
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Observer> {
        self.0.iter().map(|(client, _)| client)
    }

    pub(crate) fn all_present(&mut self) -> impl Iterator<Item = &mut Observer> {
        self.0.iter_mut().filter_map(|(client, connected)| connected.then_some(client))
    }

    /// The names of those who are not connected.
    pub(crate) fn absent(&self) -> impl Iterator<Item = &'static str> {
        self.0.iter().zip(CLIENTS).filter(|((_, connected), _)| !connected).map(|(_, (name, _))| name)
    }

    pub(crate) async fn go(&mut self, who: usize) {
        let (client, connected) = &mut self.0[who];
        if std::mem::take(connected) {
            client.client.shutdown().await;
        }
    }

    pub(crate) async fn all_go(&mut self) {
        for who in 0..self.0.len() {
            self.go(who).await;
        }
    }

    /// The host has gone, and with it all connections.
    pub(crate) fn are_left(&mut self) {
        for (_, connected) in &mut self.0 {
            *connected = false;
        }
    }

    pub(crate) async fn come_back(&mut self, who: usize, host: &StageHost) {
        let (client, connected) = &mut self.0[who];
        if !*connected {
            client.reconnect(host.address(), CLIENTS[who].0).await.unwrap();
            *connected = true;
        }
    }

    pub(crate) async fn all_come_back(&mut self, host: &StageHost) {
        for who in 0..self.0.len() {
            self.come_back(who, host).await;
        }
    }

    /// Waits until the host has handled what those who are connected have said.
    pub(crate) async fn settle(&mut self) {
        for client in self.all_present() {
            client.settle().await.unwrap();
        }
    }
}
