//! One table of Diana beside all its peers: a row for each subject, a column for each gateway.

use diana_bench::gateways::{ClientAddress, Diana, Gateway, Peer, Stage};

/// Diana and the peers that can be started.
pub(crate) struct Contenders {
    diana: Gateway,
    peers: Vec<(Peer, Gateway)>,
}

impl Contenders {
    /// Starts all of them. A peer that is not installed is reported, once, and its column stays empty.
    pub(crate) fn start(stage: &Stage, table: &mut PeerTable, address: ClientAddress, peers: &[Peer]) -> Self {
        let trusted = match address {
            ClientAddress::Connection => "",
            ClientAddress::ForwardedFor => "trusted_proxies: [127.0.0.1]",
        };
        let diana = stage.diana(Diana { gateway: trusted, ..Diana::DEFAULT });
        let started = peers.iter().filter_map(|&peer| match peer.version() {
            Ok(_) => Some((peer, stage.peer(peer, address).unwrap())),
            Err(problem) => {
                table.report_missing(peer, &problem.to_string());
                None
            }
        });
        Self { diana, peers: started.collect() }
    }

    /// Returns all of them, Diana first.
    pub(crate) fn gateways(&self) -> Vec<&Gateway> {
        std::iter::once(&self.diana).chain(self.peers.iter().map(|(_, gateway)| gateway)).collect()
    }

    /// Returns where a peer is among the gateways, if it was started.
    pub(crate) fn position(&self, wanted: Peer) -> Option<usize> {
        self.peers.iter().position(|(peer, _)| *peer == wanted).map(|index| index + 1)
    }
}

/// The goal of a row.
#[derive(Clone, Copy)]
pub(crate) enum RowGoal {
    /// At most this share of a peer's figure.
    Share(Peer, f64),
    /// At most this figure.
    Max(f64),
    None,
}

/// All rows so far.
#[derive(Default)]
pub(crate) struct PeerTable {
    rows: Vec<[String; 6]>,
    missing: Vec<(Peer, String)>,
}

impl PeerTable {
    /// Adds a row: Diana's figure, and for each peer its own, with Diana's relative to it.
    pub(crate) fn add(
        &mut self,
        what: &str,
        show: impl Fn(f64) -> String,
        diana: f64,
        peer: impl Fn(Peer) -> Option<(f64, f64)>,
        goal: RowGoal,
    ) {
        let [nginx, haproxy, envoy] = Peer::ALL.map(|name| {
            peer(name).map_or_else(|| "-".to_owned(), |(theirs, ratio)| format!("{} ({ratio:.2})", show(theirs)))
        });
        let verdict = |is_met| if is_met { "met" } else { "MISSED" };
        let goal = match goal {
            RowGoal::Share(name, max) => {
                let verdict = peer(name).map_or("not measured", |(_, ratio)| verdict(ratio <= max));
                format!("<= {max} x {}: {verdict}", name.name())
            }
            RowGoal::Max(max) => format!("<= {}: {}", show(max), verdict(diana <= max)),
            RowGoal::None => String::new(),
        };
        self.rows.push([what.to_owned(), show(diana), nginx, haproxy, envoy, goal]);
    }

    fn report_missing(&mut self, peer: Peer, problem: &str) {
        if self.missing.iter().all(|(known, _)| *known != peer) {
            eprintln!("{} is not measured: {problem}", peer.name());
            self.missing.push((peer, problem.to_owned()));
        }
    }

    /// Prints the table, and which peers are missing.
    pub(crate) fn print(&self) {
        if self.rows.is_empty() {
            return;
        }
        println!("\nDiana beside its peers: CPU a response, or memory; in brackets, Diana's relative to the peer's\n");
        let [nginx, haproxy, envoy] = Peer::ALL.map(|peer| {
            let version = peer.version().unwrap_or_else(|_| "(missing)".to_owned());
            // Without the number of Debian's package.
            format!("{} {}", peer.name(), version.split('-').next().unwrap_or_default())
        });
        let heading = [String::new(), "Diana".to_owned(), nginx, haproxy, envoy, "goal".to_owned()];
        let rows = || std::iter::once(&heading).chain(&self.rows);
        let widths =
            [0, 1, 2, 3, 4].map(|column: usize| rows().map(|row| row[column].chars().count()).max().unwrap_or(0));
        for [what, diana, nginx, haproxy, envoy, goal] in rows() {
            let [a, b, c, d, e] = widths;
            let line = format!("{what:a$}  {diana:>b$}  {nginx:>c$}  {haproxy:>d$}  {envoy:>e$}  {goal}");
            println!("{}", line.trim_end());
        }
        for (peer, problem) in &self.missing {
            println!("{} is missing: {problem}", peer.name());
        }
    }
}
