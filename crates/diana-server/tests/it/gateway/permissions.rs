//! The chain of filters: limits, signatures and permissions, in the order of the file.

use crate::support::client::{get_with, send_request};
use crate::support::program::{Diana, LONG};
use crate::support::upstream::Upstream;
use diana_testing::wait_until;

const ADMIN: &str = "
identity: {account: header(x-account-id)}
permissions:
  rules:
    - {allow: true, path: /admin/**, account: root}
    - {allow: false, path: /admin/**}
";

fn status(diana: &Diana, path: &str, account: &str) -> u16 {
    get_with(diana.port(), path, &format!("x-account-id: {account}\r\n")).status
}

#[test]
fn a_request_without_permission_gets_403_and_does_not_reach_the_service() {
    let upstream = Upstream::echo();
    let gateway = format!("gateway: {{listen: $LISTEN, upstream: '{}'}}", upstream.url());
    let diana = Diana::serve(&format!("{gateway}\n{ADMIN}rules: []"));
    assert_eq!(status(&diana, "/admin/keys", "root"), 200);
    for path in
        ["/admin/keys", "/admin", "//admin/keys", "/%61dmin/keys", "/admin%2fkeys", "/admin;x=1/keys", "/x/..%2fadmin"]
    {
        assert_eq!(status(&diana, path, "bob") / 100, 4, "{path}");
    }
    assert_eq!(status(&diana, "/orders", "bob"), 200);
    assert_eq!(upstream.count(), 2);
    let denied = get_with(diana.port(), "/admin", "x-account-id: bob\r\n");
    assert_eq!((denied.status, denied.header("content-type")), (403, Some("application/problem+json")));
    assert!(denied.text().contains("no permission for this request"), "{}", denied.text());
    let logged = || diana.output().contains("by rule 2: deny /admin/**").then_some(());
    wait_until("the reason in the log", LONG, logged).unwrap();
}

/// The essay's chain: limits, signature, permissions. What a later filter denies has counted.
#[test]
fn unsigned_requests_count_for_their_limit_first() {
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, signature: {{secret: a-secret-that-is-long-enough}}}}\n{ADMIN}\
         rules: [{{name: each, by: account, limit: 2/h}}]"
    ));
    assert_eq!([(); 3].map(|()| status(&diana, "/", "bob")), [401, 401, 503]);
    let diana =
        Diana::serve(&format!("gateway: {{listen: $LISTEN}}\n{ADMIN}rules: [{{name: each, by: account, limit: 2/h}}]"));
    assert_eq!([(); 3].map(|()| status(&diana, "/admin", "bob")), [403, 403, 503]);
}

#[test]
fn filters_before_the_limits_save_the_limits_for_others() {
    let order = "filters: [signature, permissions, limits]";
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, signature: {{secret: a-secret-that-is-long-enough}}, {order}}}\n{ADMIN}\
         rules: [{{name: each, by: account, limit: 1/h}}]"
    ));
    assert_eq!([(); 3].map(|()| status(&diana, "/", "bob")), [401; 3]);
    assert!(diana.output().contains("the filter `signature` runs before the limits"), "{}", diana.output());
    let diana = Diana::serve(&format!(
        "gateway: {{listen: $LISTEN, filters: [permissions, limits]}}\n{ADMIN}rules: [{{name: each, by: account, limit: 1/h}}]"
    ));
    assert_eq!(
        ["/admin", "/admin", "/", "/", "/admin"].map(|path| status(&diana, path, "bob")),
        [403, 403, 204, 503, 403]
    );
    // The body of a denied request is read, so that the connection can be used again.
    let post = "POST /admin HTTP/1.1\r\nhost: a\r\nx-account-id: bob\r\ncontent-length: 4\r\n\r\nbody";
    assert_eq!(send_request(diana.port(), post).unwrap().status, 403);
}

#[test]
fn shadow_permissions_are_only_logged() {
    let shadow = ADMIN.replace("permissions:", "permissions:\n  shadow: true");
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN}}\n{shadow}rules: []"));
    assert_eq!(status(&diana, "/admin", "bob"), 204);
    let logged = || diana.output().contains("would have no permission (shadow): GET \"/admin\"").then_some(());
    wait_until("the denial in the log", LONG, logged).unwrap();
}

#[test]
fn changed_permissions_apply_at_once() {
    let diana = Diana::serve(&format!("gateway: {{listen: $LISTEN}}\n{ADMIN}rules: []"));
    assert_eq!(status(&diana, "/admin", "bob"), 403);
    let file = |permissions: &str| {
        format!("gateway: {{listen: $LISTEN}}\nidentity: {{account: header(x-account-id)}}\n{permissions}rules: []")
    };
    diana.rewrite(&file(""));
    wait_until("no permissions", LONG, || (status(&diana, "/admin", "bob") == 204).then_some(())).unwrap();
    diana.rewrite(&file("permissions: {default: deny, rules: []}\n"));
    wait_until("other permissions", LONG, || (status(&diana, "/", "bob") == 403).then_some(())).unwrap();
}

#[test]
fn an_unknown_filter_is_an_error_at_the_start() {
    let file = tempfile::NamedTempFile::with_suffix(".yaml").unwrap();
    std::fs::write(file.path(), "gateway: {listen: 127.0.0.1:0, filters: [limit]}\nrules: []\n").unwrap();
    let output = crate::support::program::serve(file.path()).arg("--admin").arg("127.0.0.1:0").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && text.contains("unknown filter `limit`: expected limits or permissions"),
        "{text}"
    );
}

#[test]
fn other_gateways_get_the_same_answer() {
    let diana =
        Diana::serve(&format!("services: {{http: $LISTEN}}\n{ADMIN}rules: [{{name: each, by: account, limit: 3/h}}]"));
    let check = |path: &str, account: &str, target: &str| {
        let headers = format!("x-forwarded-uri: {path}\r\nx-account-id: {account}\r\n");
        send_request(diana.port(), &format!("GET {target} HTTP/1.1\r\nhost: a\r\n{headers}\r\n")).unwrap().status
    };
    assert_eq!(check("/admin", "root", "/check"), 204);
    assert_eq!(
        ["/check", "/check/401", "/check", "/check"].map(|target| check("/admin", "bob", target)),
        [403, 401, 403, 503]
    );
}
