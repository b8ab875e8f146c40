//! Diana compared with nginx, HAProxy and Envoy, by protocol, outcome and type of load.

use crate::options::Options;
use crate::peer_table::{Contenders, PeerTable, RowGoal};
use diana_bench::gateways::load::{ConnReuse, Figure, Load, Measured, measure};
use diana_bench::gateways::{ClientAddress, Peer, Protocol, Stage};
use diana_bench::report::{Goal, Report, ns};

/// One load on all gateways.
struct Subject {
    /// As `--only` names it.
    name: &'static str,
    title: &'static str,
    load: Load,
    /// The peers that it is measured with.
    peers: &'static [Peer],
    /// The goal for the CPU per response, relative to that of a peer.
    goal: Option<(Peer, f64)>,
}

const fn subject(name: &'static str, title: &'static str, load: Load, goal: Option<(Peer, f64)>) -> Subject {
    Subject { name, title, load, peers: &Peer::ALL, goal }
}

const CLOSED: ConnReuse = ConnReuse::Closed;
const SUBJECTS: &[Subject] = &[
    subject("forward", "HTTP/1 forwarded", Load::FORWARD, Some((Peer::Nginx, 0.92))),
    subject("refuse", "HTTP/1 denied", Load::DENY, Some((Peer::Nginx, 0.95))),
    subject("half", "HTTP/1 half denied, half forwarded", Load::HALF, Some((Peer::Nginx, 0.92))),
    subject(
        "close-forward",
        "HTTP/1 forwarded, a connection for each",
        Load { reuse: CLOSED, ..Load::FORWARD },
        Some((Peer::Nginx, 1.05)),
    ),
    subject(
        "close-refuse",
        "HTTP/1 denied, a connection for each",
        Load { reuse: CLOSED, ..Load::DENY },
        Some((Peer::Nginx, 1.05)),
    ),
    subject("h2c-forward", "h2c forwarded", Load::FORWARD.by(Protocol::H2c), None),
    subject("h2c-refuse", "h2c denied", Load::DENY.by(Protocol::H2c), Some((Peer::Haproxy, 1.1))),
    subject("tls-forward", "TLS forwarded", Load::FORWARD.by(Protocol::Tls), None),
    subject("tls-refuse", "TLS denied", Load::DENY.by(Protocol::Tls), None),
    Subject {
        peers: &[Peer::Nginx],
        ..subject(
            "many-forward",
            "HTTP/1 forwarded, 1,000 connections",
            Load { connections: 1_000, ..Load::FORWARD },
            None,
        )
    },
    Subject {
        peers: &[Peer::Nginx],
        ..subject("many-refuse", "HTTP/1 denied, 1,000 connections", Load { connections: 1_000, ..Load::DENY }, None)
    },
];

pub(crate) fn run(report: &mut Report, table: &mut PeerTable, stage: &Stage, options: &Options) {
    let wanted = || SUBJECTS.iter().filter(|subject| options.wants(subject.name));
    if wanted().count() == 0 {
        return;
    }
    let all = Contenders::start(stage, table, ClientAddress::Connection, &Peer::ALL);
    for Subject { title, load, peers, goal, .. } in wanted() {
        report.section(title);
        let is_measured = |peer: &Peer| all.position(*peer).is_some();
        let peers: Vec<Peer> = peers.iter().copied().filter(is_measured).collect();
        let everyone = all.gateways();
        let positions = std::iter::once(0).chain(peers.iter().filter_map(|peer| all.position(*peer)));
        let gateways: Vec<_> = positions.map(|index| everyone[index]).collect();
        let measured = measure(options.effort, *load, &gateways);
        let position = |wanted: Peer| peers.iter().position(|peer| *peer == wanted).map(|index| index + 1);
        for (index, peer) in (1..).zip(&peers) {
            let goal = goal.filter(|(of, _)| of == peer).map_or(Goal::Information, |(_, max)| Goal::AtMost(max));
            // Rate and latency of one peer are enough to compare with.
            let figures: &[Figure] = if index == 1 { &Figure::ALL } else { &[Figure::Cpu] };
            lines(report, &measured, (0, index), peer.name(), figures, goal);
        }
        let of_peer = |peer| {
            let index = position(peer)?;
            Some((measured.median(index, Figure::Cpu), measured.ratio(0, index, Figure::Cpu)))
        };
        let row_goal = goal.map_or(RowGoal::None, |(peer, max)| RowGoal::Share(peer, max));
        table.add(title, ns, measured.median(0, Figure::Cpu), of_peer, row_goal);
    }
}

/// Reports figures of one gateway compared with a peer's. The goal is for its CPU.
pub(crate) fn lines(
    report: &mut Report,
    measured: &Measured,
    (own, peer): (usize, usize),
    name: &str,
    figures: &[Figure],
    goal: Goal,
) {
    for &figure in figures {
        let [ours, theirs] = [own, peer].map(|gateway| measured.median(gateway, figure));
        // h2load reports no percentiles.
        if ours.is_nan() {
            continue;
        }
        let goal = if figure == Figure::Cpu { goal } else { Goal::Information };
        let (ours, theirs) = (figure.show(ours), format!("{name} {}", figure.show(theirs)));
        report.compare(figure.name(), ours, theirs, measured.ratio(own, peer, figure), goal);
    }
}
