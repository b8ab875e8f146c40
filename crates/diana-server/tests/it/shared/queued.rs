//! Requests that are queued for a shared count are woken by changes that another gateway makes.

use crate::support::client::{Client, ask, get};
use crate::support::program::{Diana, LONG};
use diana_testing::{RedisServer, wait_until};

#[test]
fn queued_requests_are_woken_by_a_reset_through_another_gateway() {
    let redis = RedisServer::start().unwrap();
    let rules = format!(
        "
gateway: {{listen: '$LISTEN', workers: 1, echo: true}}
store: {{redis: '{}', timeout: 20s}}
rules: [{{name: daily, limit: 1/day, algorithm: fixed_window, wait: 2d}}]
",
        redis.url()
    );
    let (one, other) = (Diana::serve(&rules), Diana::serve(&rules));
    let listening = || redis.cli(&["PUBSUB", "NUMSUB", "diana:returned"]).unwrap().contains('2').then_some(());
    wait_until("both listen", LONG, listening).unwrap();
    assert_eq!(get(other.port(), "/").status, 200);
    let mut queued = Client::connect(one.port());
    queued.send("GET / HTTP/1.1\r\nhost: example.com\r\n\r\n");
    wait_until("it to be queued", LONG, || (one.metric("diana_connections") == 1.0).then_some(())).unwrap();
    let reset = "POST /reset?rule=daily HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\n\r\n";
    assert_eq!(ask(other.admin_port(), reset).unwrap().status, 200);
    assert_eq!(queued.answer().status, 200);
}
