//! Diana compared with itself: one rule and ten rules, local and shared counts.

use crate::options::Options;
use crate::vs_peers::lines;
use diana_bench::gateways::load::{Figure, Load, measure};
use diana_bench::gateways::{Diana, Gateway, Stage};
use diana_bench::process_cpu;
use diana_bench::report::{Goal, Report, ns};
use diana_testing::RedisServer;

/// By client address, never reached.
const ONE: &str = "
  - {name: each-client, by: ip, limit: 1000000/s}
";

/// All match every request, by ten different keys.
const TEN: &str = "
  - {name: each-client, by: ip, limit: 1000000/s}
  - {name: everyone, limit: 1000000/s}
  - {name: each-network, by: ip/24, limit: 1000000/s}
  - {name: each-path, by: resource, limit: 1000000/s}
  - {name: each-host, by: host, limit: 1000000/s}
  - {name: each-method, match: {method: GET}, by: method, limit: 1000000/s}
  - {name: each-host-header, match: {header: {host: '*'}}, by: header(host), limit: 1000000/s}
  - {name: each-client-and-path, match: {path: /open/**}, by: [ip, resource], limit: 1000000/s}
  - {name: each-client-and-method, match: {ip: 127.0.0.0/8}, by: [ip, method], limit: 1000000/s}
  - {name: each-network-and-host, match: {path: '/{any}'}, by: [ip/16, host], limit: 1000000/s}
";

/// Only one of them matches the requests.
fn one_of_ten() -> String {
    let others =
        (1..10).map(|n| format!("  - {{name: other-{n}, match: {{path: /other/{n}/**}}, by: ip, limit: 10/s}}\n"));
    format!("{ONE}{}", others.collect::<String>())
}

pub(crate) fn rules(report: &mut Report, stage: &Stage, options: &Options) {
    if !options.wants("rules") {
        return;
    }
    let with = |name, rules: &str| stage.diana(Diana { name, rules, ..Diana::DEFAULT });
    let one = with("1 rule", ONE);
    let one_of_ten = with("10 rules, 1 of them matches", &one_of_ten());
    let ten = with("10 rules, all match", TEN);
    report.section("10 rules compared with 1 rule, all forwarded");
    let measured = measure(options.effort, Load::FORWARD, &[&one, &one_of_ten, &ten]);
    for (index, gateway) in [(1, &one_of_ten), (2, &ten)] {
        let (own, peer) = (measured.median(index, Figure::Cpu), measured.median(0, Figure::Cpu));
        let what = format!("  CPU a request, {}", gateway.name);
        let ratio = measured.ratio(index, 0, Figure::Cpu);
        report.compare(&what, ns(own), format!("1 rule {}", ns(peer)), ratio, Goal::AtMost(1.15));
    }
}

pub(crate) fn redis(report: &mut Report, stage: &Stage, options: &Options) {
    if !options.wants("redis") {
        return;
    }
    let redis = RedisServer::start().unwrap();
    // Long timeouts, so that Redis is measured and not the fallback on a busy machine.
    let shared = |name, lease| -> Gateway {
        let store = format!("store: {{redis: '{}', timeout: 1s, lease: {lease}}}", redis.url());
        stage.diana(Diana { name, sections: &store, rules: ONE, ..Diana::DEFAULT })
    };
    let (own, plain, leases) = (
        stage.diana(Diana { name: "local counts", rules: ONE, ..Diana::DEFAULT }),
        shared("shared counts", "off"),
        shared("shared counts with leases", "auto"),
    );
    let before = process_cpu::nanos(redis.pid());
    let measured = measure(options.effort, Load::FORWARD, &[&own, &plain, &leases]);
    let seconds = (process_cpu::nanos(redis.pid()) - before) as f64 / 1e9;
    for (index, gateway) in [(1, &plain), (2, &leases)] {
        report.section(&format!("{} on Redis compared with counts in the process, all forwarded", gateway.name));
        lines(report, &measured, (index, 0), "local", &Figure::ALL, Goal::Information);
    }
    report.figure("  CPU of Redis in all", format!("{seconds:.1} s"), "on the core of wrk and the upstream".to_owned());
}
