//! The cases of the essays that Diana started from, through rule files and the real program: beside a real nginx whose
//! configuration was imported, and with several gateways on a real Redis.
//!
//! The print-outs that need no server are in `essays.rs` of `diana` and of `diana-redis`. The order of filters is in
//! `gateway/permissions.rs`.

use crate::support::client::{Client, get};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::{Gate, Upstream};
use diana::rules::attributes::SyntheticRequest;
use diana::{Clock, DecideMode, EngineOptions, ManualClock, SystemClock, Timestamp};
use diana_import::{NoteKind, import_nginx};
use diana_rules::{Document, RuleFile};
use diana_server::registry;
use diana_testing::{NginxServer, RedisServer};
use std::net::Shutdown;
use std::sync::mpsc;
use std::time::Duration;

/// Returns the rules that `diana import nginx` makes of a configuration; it must convert all of it.
fn imported(conf: &str) -> String {
    let imported =
        import_nginx("nginx.conf", conf, &registry(), &|_| Ok(Vec::new())).unwrap_or_else(|error| panic!("{error}"));
    assert!(imported.notes.iter().all(|note| note.kind == NoteKind::Info), "{:?}", imported.notes);
    imported.rules
}

/// A configuration whose only location has this content, and `proxy_pass`.
fn conf(zones: &str, location: &str, port: u16, upstream: &Upstream) -> String {
    let upstream = upstream.url();
    format!(
        "{zones}
server {{
    listen 127.0.0.1:{port};
    server_name example.com;
    location / {{
        {location}
        proxy_pass {upstream};
    }}
}}
"
    )
}

/// nginx and Diana with the same limits.
struct Servers {
    nginx: NginxServer,
    diana: Diana,
}

impl Servers {
    fn start(zones: &str, location: &str, behind_nginx: &Upstream, behind_diana: &Upstream) -> Self {
        let nginx = NginxServer::start(|port| conf(zones, location, port, behind_nginx)).unwrap();
        let rules = imported(&conf(zones, location, 80, behind_diana));
        let gateway = format!("gateway: {{listen: $LISTEN, upstream: '{}'}}", behind_diana.url());
        Self { nginx, diana: Diana::serve(&format!("{gateway}\n{rules}")) }
    }
}

const REQUESTS: &str = "limit_req_zone $binary_remote_addr zone=one:10m rate=1r/m;";

/// Of `ab -n 5 -c 5`.
fn limit_conn_of_five(port: u16, gate: &Gate) -> Vec<u16> {
    let mut first = Client::connect(port);
    first.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
    gate.upstream.wait_for(1);
    let mut statuses = (0..4).map(|_| get(port, "/").status).collect::<Vec<_>>();
    gate.open();
    statuses.push(first.response().status);
    statuses
}

#[test]
fn with_limit_conn_1_one_of_five_concurrent_requests_passes_as_in_nginx() {
    for zones in ["limit_conn_zone $binary_remote_addr zone=one:10m;", "limit_conn_zone $server_name zone=one:10m;"] {
        let [behind_nginx, behind_diana] = [Gate::closed(), Gate::closed()];
        let location = "limit_conn_log_level error; limit_conn_status 503; limit_conn one 1;";
        let servers = Servers::start(zones, location, &behind_nginx.upstream, &behind_diana.upstream);
        let expected = [503, 503, 503, 503, 200];
        assert_eq!(limit_conn_of_five(servers.nginx.port(), &behind_nginx), expected, "{zones}");
        assert_eq!(limit_conn_of_five(servers.diana.port(), &behind_diana), expected, "{zones}");
    }
}

/// One request a minute instead of one a second, so that no request is refilled during the test.
#[test]
fn with_limit_req_burst_5_nodelay_six_requests_pass_as_in_nginx() {
    let upstream = Upstream::echo();
    for (location, expected) in [
        ("limit_req zone=one burst=5 nodelay;", [200, 200, 200, 200, 200, 200, 503, 503]),
        ("limit_req zone=one;", [200, 503, 503, 503, 503, 503, 503, 503]),
    ] {
        let servers = Servers::start(REQUESTS, location, &upstream, &upstream);
        for port in [servers.nginx.port(), servers.diana.port()] {
            assert_eq!([(); 8].map(|()| get(port, "/").status), expected, "{location}");
        }
    }
}

/// Sends seven requests at once. Returns the statuses of the two that are answered while the others are delayed.
fn limit_req_of_seven(port: u16) -> Vec<u16> {
    let (statuses, answered) = mpsc::channel();
    let mut streams = Vec::new();
    for _ in 0..7 {
        let mut client = Client::connect(port);
        streams.push(client.stream().try_clone().unwrap());
        let statuses = statuses.clone();
        std::thread::spawn(move || {
            client.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
            let _ = client.try_response().map(|response| statuses.send(response.status));
        });
    }
    let mut two = [(); 2].map(|()| answered.recv_timeout(LONG).unwrap());
    two.sort_unstable();
    for stream in streams {
        let _ = stream.shutdown(Shutdown::Both);
    }
    two.to_vec()
}

#[test]
fn with_limit_req_burst_5_five_requests_are_delayed_and_the_seventh_is_denied_as_in_nginx() {
    let [behind_nginx, behind_diana] = [Upstream::echo(), Upstream::echo()];
    let servers = Servers::start(REQUESTS, "limit_req zone=one burst=5;", &behind_nginx, &behind_diana);
    for (port, upstream) in [(servers.nginx.port(), behind_nginx), (servers.diana.port(), behind_diana)] {
        assert_eq!(limit_req_of_seven(port), [200, 503]);
        assert_eq!(upstream.count(), 1, "the other five are delayed");
    }
}

#[test]
fn delayed_requests_leave_at_the_rate_of_limit_req_as_in_nginx() {
    let upstream = Upstream::echo();
    let zones = "limit_req_zone $binary_remote_addr zone=one:10m rate=10r/s;";
    let servers = Servers::start(zones, "limit_req zone=one burst=5;", &upstream, &upstream);
    for port in [servers.nginx.port(), servers.diana.port()] {
        let mut clients = [(); 6].map(|()| Client::connect(port));
        let began = SystemClock.now();
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
        }
        assert_eq!(clients.map(|mut client| client.response().status), [200; 6]);
        // nginx has whole milliseconds.
        let elapsed = SystemClock.now().since(began);
        assert!(elapsed >= Duration::from_millis(499), "five of six requests took only {elapsed:?}");
    }
}

/// The essay's rates on a clock that stands still: nginx's are real, so it can't be asked for these.
#[test]
fn an_imported_limit_req_delays_by_1_to_5_seconds() {
    let decisions = |rate: &str, location: &str| {
        let conf = format!(
            "limit_req_zone $binary_remote_addr zone=one:10m rate={rate};
             server {{ location / {{ limit_req zone=one {location}; }} }}"
        );
        let file = RuleFile::read(&Document::new("diana.yaml", imported(&conf)), &registry());
        let file = file.unwrap_or_else(|problems| panic!("{problems}"));
        let clock = ManualClock::at(Timestamp::from_secs(1_700_000_000));
        let engine = EngineOptions::of(&file).clock(clock).build(&file);
        let request = SyntheticRequest::new("GET", "/").ip([192, 168, 1, 100]);
        [(); 7].map(|()| {
            let decided = engine.decide(&[&request], DecideMode::Deny).now().unwrap();
            decided.ok()?.wait().map(|wait| wait.as_millis())
        })
    };
    let delayed = [Some(0), Some(1_000), Some(2_000), Some(3_000), Some(4_000), Some(5_000), None];
    assert_eq!(decisions("1r/s", "burst=5"), delayed);
    assert_eq!(decisions("60r/m", "burst=5"), delayed);
    assert_eq!(decisions("10r/s", "burst=5"), [Some(0), Some(100), Some(200), Some(300), Some(400), Some(500), None]);
    assert_eq!(decisions("1r/s", "burst=5 nodelay"), [Some(0), Some(0), Some(0), Some(0), Some(0), Some(0), None]);
    assert_eq!(decisions("1r/s", ""), [Some(0), None, None, None, None, None, None]);
}

#[test]
fn with_limit_rate_50k_150_kib_take_as_long_as_in_nginx() {
    const LENGTH: usize = 150 << 10;
    let upstream = Upstream::start(|exchange| exchange.respond("200 OK", "", &[b'x'; LENGTH]));
    let servers = Servers::start("", "limit_rate 50k;", &upstream, &upstream);
    let download = |port: u16| {
        let began = SystemClock.now();
        let response = get(port, "/");
        assert_eq!((response.status, response.body.len()), (200, LENGTH));
        SystemClock.now().since(began).as_secs_f64()
    };
    // At once, so that both have the same machine.
    let (diana, nginx) = std::thread::scope(|scope| {
        let nginx = scope.spawn(|| download(servers.nginx.port()));
        (download(servers.diana.port()), nginx.join().unwrap())
    });
    assert!(diana >= 2.97, "{diana} s, which is over the rate");
    // Half a second more or less of three; a burst of one second of the rate would make it two.
    let ratio = diana / nginx;
    assert!((0.83..1.2).contains(&ratio), "{diana} s in Diana, {nginx} s in nginx");
}

/// Three gateways, each with its own connection to one Redis.
fn three_gateways(redis: &RedisServer, rest: &str) -> [Diana; 3] {
    let rules = format!(
        "gateway: {{listen: '$LISTEN', workers: 1}}
store: {{redis: '{}', timeout: 20s, lease: off}}
rules: [{{name: everyone, {rest}}}]
",
        redis.url()
    );
    [(); 3].map(|()| Diana::serve(&rules))
}

/// Sends 30 requests to each, all at once. Returns how many passed.
fn passed_of_30_each(gateways: &[Diana]) -> usize {
    let send = |port: u16| {
        let mut client = Client::connect(port);
        let statuses = (0..30).map(|_| client.get("/").status).collect::<Vec<_>>();
        assert!(statuses.iter().all(|status| [204, 503].contains(status)), "{statuses:?}");
        statuses.iter().filter(|status| **status == 204).count()
    };
    std::thread::scope(|scope| {
        let threads = gateways.iter().map(|diana| scope.spawn(|| send(diana.port()))).collect::<Vec<_>>();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    })
}

/// The window lasts an hour instead of a second, so that it does not end during the test.
#[test]
fn three_gateways_on_one_redis_pass_50_together_and_an_idle_one_denies_too() {
    let redis = RedisServer::start().unwrap();
    let shared = "limit: 50/h, algorithm: fixed_window, opens: first_request";
    let gateways = three_gateways(&redis, shared);
    assert_eq!(passed_of_30_each(&gateways), 50);
    let redis = RedisServer::start().unwrap();
    let gateways = three_gateways(&redis, shared);
    assert_eq!(passed_of_30_each(&gateways[..2]), 50);
    assert_eq!(get(gateways[2].port(), "/").status, 503, "the first request of the third");
}

#[test]
fn with_local_counts_each_of_three_gateways_passes_50() {
    let redis = RedisServer::start().unwrap();
    let local = "limit: 50/h, algorithm: fixed_window, opens: first_request, store: local";
    let gateways = three_gateways(&redis, local);
    assert_eq!(passed_of_30_each(&gateways) + passed_of_30_each(&gateways), 150);
}

/// nginx counts `limit_conn` in one nginx only. Gateways of Diana behind several count together.
#[test]
fn one_limit_conn_holds_over_several_nginx() {
    let (redis, gate) = (RedisServer::start().unwrap(), Gate::closed());
    let conf = "limit_conn_zone $server_name zone=one:10m;
server { server_name example.com; location / { limit_conn one 1; } }";
    let rules = imported(conf);
    let rules = format!(
        "gateway: {{listen: '$LISTEN', upstream: '{}'}}\nstore: {{redis: '{}', timeout: 20s}}\n{rules}",
        gate.upstream.url(),
        redis.url()
    );
    let gateways = [(); 2].map(|()| Diana::serve(&rules));
    let nginx = |diana: &Diana| {
        let to = diana.port();
        let server =
            |port| format!("server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://127.0.0.1:{to}; }} }}");
        NginxServer::start(server).unwrap()
    };
    let [one, other] = [nginx(&gateways[0]), nginx(&gateways[1])];
    let mut first = Client::connect(one.port());
    first.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
    gate.upstream.wait_for(1);
    assert_eq!([&one, &other].map(|nginx| get(nginx.port(), "/").status), [503, 503]);
    gate.open();
    assert_eq!(first.response().status, 200);
    let again = || (get(other.port(), "/").status == 200).then_some(());
    diana_testing::wait_until("the permit to be released", LONG, again).unwrap();
}
