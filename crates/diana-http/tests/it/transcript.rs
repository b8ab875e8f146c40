//! Transcripts of requests and responses, as clients see them.

use crate::support::{body, client, denied, empty, filter, get, granted, head};

#[test]
fn responses_report_the_limit_and_denials_the_retry_time() {
    let (filter, clock) = filter("rules: [{name: each-client, by: ip, limit: 2/min, status: 429}]");
    let send = || granted(filter.check(&get("/"), client())).finish(empty());
    assert_eq!(head(&send()), "200\nratelimit-policy: \"each-client\";q=2;w=60\nratelimit: \"each-client\";r=1;t=30");
    assert_eq!(head(&send()), "200\nratelimit-policy: \"each-client\";q=2;w=60\nratelimit: \"each-client\";r=0;t=60");
    clock.advance(std::time::Duration::from_millis(500));
    let response = denied(filter.check(&get("/"), client())).into_response();
    assert_eq!(
        head(&response),
        "429\n\
        content-type: application/problem+json\n\
        ratelimit-policy: \"each-client\";q=2;w=60\n\
        ratelimit: \"each-client\";r=0;t=60\n\
        retry-after: 30"
    );
    assert_eq!(
        body(response),
        "{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
        \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
        \"status\":429,\"violated-policies\":[\"each-client\"]}\n"
    );
    clock.advance(std::time::Duration::from_millis(29_500));
    assert_eq!(head(&send()), "200\nratelimit-policy: \"each-client\";q=2;w=60\nratelimit: \"each-client\";r=0;t=60");
}
