//! Limits on the functions that handle requests: they know the caller, and a denial is a response.

use axum::body::Body;
use axum::routing::get;
use axum::{Router, response::IntoResponse};
use diana::limited::{Caller, Limits};
use diana::rules::{Document, Registry, RuleFile};
use diana::{Engine, ManualClock, count_limit, limited, rate_limit};
use diana_http::{ClientAddress, LimitedResponse, RateLimitLayer};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use std::net::IpAddr;
use tower::ServiceExt;

const RULES: &str = "
identity: {account: header(x-account), tenant: 'cel(\"request.host\")', device: cookie(device)}
rules:
  - {name: everyone, limit: 1000/s}
  - {name: by-hand, match: {call: item}, by: [tenant, item], limit: 1/h, status: 420}
";

/// A function that a handler calls.
#[count_limit(limit = 1, period = "1h", by = user, in = "calls")]
async fn export() -> Result<&'static str, LimitedResponse> {
    Ok("exported")
}

#[rate_limit(rate = 0.001, burst = 1, by = ip, in = "calls")]
async fn log_in() -> Result<&'static str, LimitedResponse> {
    Ok("welcome")
}

#[limited("by-hand", item = "{item}", in = "calls")]
async fn order(item: u32) -> Result<String, LimitedResponse> {
    Ok(format!("item {item}"))
}

#[count_limit(limit = 1, period = "1h", in = "nowhere")]
async fn nowhere() -> Result<&'static str, LimitedResponse> {
    Ok("never")
}

async fn known() -> String {
    let caller = Caller::current().unwrap();
    format!("{:?} {:?} {:?} {:?}", caller.ip(), caller.user(), caller.get("tenant"), caller.get("device"))
}

fn app() -> Router {
    let file = RuleFile::read(&Document::new("diana.yaml", RULES), &Registry::default());
    let file = file.unwrap_or_else(|problems| panic!("{problems}"));
    let engine = Engine::new(&file);
    Limits::new().with_clock(ManualClock::new()).with_rules(engine.clone()).install_as("calls");
    Router::new()
        .route("/export", get(export))
        .route("/log-in", get(log_in))
        .route("/order", get(async || order(7).await))
        .route("/nowhere", get(nowhere))
        .route("/known", get(known))
        .layer(RateLimitLayer::with_engine(engine))
}

async fn get_as(app: &Router, path: &str, account: &str, ip: [u8; 4]) -> (u16, Option<String>, String) {
    let request =
        Request::get(path).header("x-account", account).header("host", "Shop.example").header("cookie", "device=d7");
    let request = request.extension(ClientAddress(IpAddr::from(ip))).body(Body::empty()).unwrap();
    let (head, body) = app.clone().oneshot(request).await.unwrap().into_parts();
    let retry = head.headers.get("retry-after").map(|value| value.to_str().unwrap().to_owned());
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), retry, String::from_utf8(body.to_vec()).unwrap())
}

// One test, since limits are installed for the whole process.
#[tokio::test]
async fn handlers_know_the_caller_and_respond_with_denials() {
    let app = app();
    let (home, office) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let known = r#"Some(192.0.2.1) Some("ann") Some("shop.example") Some("d7")"#;
    assert_eq!(get_as(&app, "/known", "ann", home).await, (200, None, known.to_owned()));

    // By user, from any address.
    assert_eq!(get_as(&app, "/export", "ann", home).await.0, 200);
    let (status, retry, body) = get_as(&app, "/export", "ann", office).await;
    assert_eq!((status, retry.as_deref()), (429, Some("3600")));
    assert!(body.contains(r#""violated-policies":["export"]"#), "{body}");
    assert_eq!(get_as(&app, "/export", "bob", home).await.0, 200);

    // By address, for any user.
    assert_eq!(get_as(&app, "/log-in", "ann", home).await.0, 200);
    let (status, retry, _) = get_as(&app, "/log-in", "bob", home).await;
    assert_eq!((status, retry.as_deref()), (429, Some("1000")));
    assert_eq!(get_as(&app, "/log-in", "bob", office).await.0, 200);

    // By a rule, with its status.
    assert_eq!(get_as(&app, "/order", "ann", home).await, (200, None, "item 7".to_owned()));
    let (status, retry, body) = get_as(&app, "/order", "bob", office).await;
    assert_eq!((status, retry.as_deref()), (420, Some("3600")));
    assert!(body.contains(r#""violated-policies":["by-hand"]"#), "{body}");

    // Errors in the program are not shown to clients.
    let (status, retry, body) = get_as(&app, "/nowhere", "ann", home).await;
    assert_eq!((status, retry), (500, None));
    assert!(!body.contains("nowhere") && !body.contains("install"), "{body}");
}

#[tokio::test]
async fn a_denial_has_an_error_message() {
    let denial = nowhere().await.unwrap_err();
    assert!(denial.to_string().contains("is not installed"), "{denial}");
    assert_eq!(denial.limited().status(), 500);
    assert_eq!(IntoResponse::into_response(denial).status(), StatusCode::INTERNAL_SERVER_ERROR);
}
