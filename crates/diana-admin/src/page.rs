//! The web page. It is static: scripts fetch the data. Everything is in the program; nothing is loaded from elsewhere.

use super::response::not_found;
use axum::extract::Path;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use diana_metrics::{Metric, Totals, UpstreamStatus};
use serde_json::{Value, json};

/// The modules of the script, below `/page/`; `metrics.js` is written from the lists of metrics.
const MODULES: [(&str, &str); 11] = [
    ("access.js", include_str!("page/modules/access.js")),
    ("api.js", include_str!("page/modules/api.js")),
    ("audit.js", include_str!("page/modules/audit.js")),
    ("changes.js", include_str!("page/modules/changes.js")),
    ("chart.js", include_str!("page/modules/chart.js")),
    ("dom.js", include_str!("page/modules/dom.js")),
    ("keys.js", include_str!("page/modules/keys.js")),
    ("overview.js", include_str!("page/modules/overview.js")),
    ("rule.js", include_str!("page/modules/rule.js")),
    ("state.js", include_str!("page/modules/state.js")),
    ("tools.js", include_str!("page/modules/tools.js")),
];

pub(super) async fn html() -> Response {
    content("text/html; charset=utf-8", include_str!("page/page.html"))
}

pub(super) async fn css() -> Response {
    content("text/css; charset=utf-8", include_str!("page/page.css"))
}

pub(super) async fn js() -> Response {
    content("text/javascript; charset=utf-8", include_str!("page/page.js"))
}

/// Returns the module with the metrics that the page shows: `[field, help]` of each.
fn metrics() -> String {
    fn shown<T>(metrics: &[Metric<T>]) -> Value {
        metrics.iter().filter(|metric| metric.is_shown).map(|metric| json!([metric.field, metric.help])).collect()
    }
    let (gateway, upstream) = (shown(Totals::METRICS), shown(UpstreamStatus::METRICS));
    format!("export const GATEWAY = {gateway};\nexport const UPSTREAM = {upstream};\n")
}

pub(super) async fn module(Path(name): Path<String>) -> Response {
    if name == "metrics.js" {
        return content("text/javascript; charset=utf-8", metrics());
    }
    match MODULES.iter().find(|(module, _)| *module == name) {
        Some((_, text)) => content("text/javascript; charset=utf-8", *text),
        None => not_found().await.into_response(),
    }
}

fn content(kind: &'static str, text: impl IntoResponse) -> Response {
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}
