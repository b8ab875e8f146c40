//! An nginx uses its configuration, reports errors in it, and cleans up.

use diana_testing::{H2load, NginxServer, Port, Wrk};
use std::path::Path;
use std::time::Duration;

/// A server that allows `/open`, and denies all but the first request for `/shut`.
fn limiting() -> NginxServer {
    NginxServer::start(|port| {
        format!(
            "limit_req_zone $binary_remote_addr zone=tight:1m rate=1r/m;
            server {{
                listen 127.0.0.1:{port};
                location / {{ root /nowhere; try_files none @ok; }}
                location /shut {{ limit_req zone=tight; root /nowhere; try_files none @ok; }}
                location @ok {{ return 200 ok; }}
            }}"
        )
    })
    .unwrap()
}

#[test]
fn wrk_counts_denied_requests() {
    let nginx = limiting();
    let wrk = Wrk::new(&nginx.url()).connections(4).duration(Duration::from_millis(1));
    let open = wrk.run(&["/open"]).unwrap();
    assert!(open.answers > 0 && open.denied == 0 && open.errors == 0, "{open:?}");
    assert!(open.p50 <= open.p99 && open.p99 <= open.took, "{open:?}");
    let shut = wrk.run(&["/shut"]).unwrap();
    assert!(shut.answers > 0 && shut.answers - shut.denied <= 1, "{shut:?}");
    // In turn for each connection or for all: half of them, except for those in flight at the end.
    let half = wrk.run(&["/open", "/shut"]).unwrap();
    assert!((half.denied * 2).abs_diff(half.answers) <= 8, "{half:?}");
    let closing = wrk.header("Connection: close").run(&["/open"]).unwrap();
    assert!(closing.answers > 0 && closing.denied == 0, "{closing:?}");
}

#[test]
fn h2load_counts_denied_requests() {
    let http2 = Port::claim().unwrap();
    let _nginx = NginxServer::start(|port| {
        format!(
            "keepalive_requests 1000000000;
            server {{
                listen 127.0.0.1:{port};
                listen 127.0.0.1:{} http2;
                location /open {{ return 200 ok; }}
                location /shut {{ return 503; }}
            }}",
            http2.number()
        )
    })
    .unwrap();
    let load = H2load::new(&format!("http://127.0.0.1:{}", http2.number()));
    let load = load.connections(2).streams(2).duration(Duration::from_millis(200));
    let open = load.run(&["/open"]).unwrap();
    assert!(open.answers > 0 && open.denied == 0 && open.errors == 0, "{open:?}");
    let shut = load.run(&["/shut"]).unwrap();
    assert!(shut.answers > 0 && shut.answers == shut.denied, "{shut:?}");
    // In turn for each connection: half of them, except for those in flight at the end.
    let half = load.run(&["/open", "/shut"]).unwrap();
    assert!((half.denied * 2).abs_diff(half.answers) <= 16, "{half:?}");
}

#[test]
fn every_request_comes_from_another_client() {
    let nginx = NginxServer::start(|port| {
        format!(
            "limit_req_zone $http_x_forwarded_for zone=each:10m rate=1r/m;
            server {{
                listen 127.0.0.1:{port};
                location / {{ limit_req zone=each; root /nowhere; try_files none @ok; }}
                location @ok {{ return 200 ok; }}
            }}"
        )
    })
    .unwrap();
    let wrk = Wrk::new(&nginx.url()).connections(4).duration(Duration::from_millis(1));
    let one = wrk.clone().header("X-Forwarded-For: 192.0.2.1").run(&["/"]).unwrap();
    assert!(one.answers - one.denied <= 1, "{one:?}");
    let many = wrk.distinct_clients().run(&["/"]).unwrap();
    assert!(many.answers > 0 && many.denied == 0 && many.errors == 0, "{many:?}");
}

#[test]
fn the_worker_is_killed_with_the_server() {
    let mut nginx = limiting();
    let workers = nginx.workers().unwrap();
    assert_eq!(workers.len(), 1);
    assert!(diana_testing::resident(workers[0]).unwrap() > 0);
    nginx.kill().unwrap();
    assert!(diana_testing::resident(workers[0]).is_err());
    assert!(Wrk::new(&nginx.url()).connections(1).run(&["/open"]).is_err());
}

#[test]
fn an_invalid_configuration_is_reported() {
    let error = NginxServer::start(|_| "no_such_thing;".to_owned()).unwrap_err().to_string();
    assert!(error.contains("unknown directive \"no_such_thing\""), "{error}");
}

#[test]
fn runs_under_a_command_prefix() {
    let http = |port| format!("server {{ listen 127.0.0.1:{port}; return 200 ok; }}");
    let nginx = NginxServer::start_under(&["nice", "-n", "1"], http).unwrap();
    let worker = nginx.workers().unwrap()[0];
    let stat = std::fs::read_to_string(Path::new("/proc").join(worker.to_string()).join("stat")).unwrap();
    let nice = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(16).unwrap();
    assert_eq!(nice, "1");
}
