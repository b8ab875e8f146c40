//! The web page. It is static: a script fetches the data.

use axum::http::{HeaderName, header};

type Part = ([(HeaderName, &'static str); 1], &'static str);

pub(super) async fn html() -> Part {
    ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], include_str!("page/page.html"))
}

pub(super) async fn css() -> Part {
    ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], include_str!("page/page.css"))
}

pub(super) async fn js() -> Part {
    ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], include_str!("page/page.js"))
}
