//! The links of a page. A real crawler would use an HTML parser.

use reqwest::Url;

/// Returns the URLs in `href="..."`, without fragments.
pub(crate) fn of(page: &Url, html: &str) -> Vec<Url> {
    let quoted = html.split("href=\"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0));
    let urls = quoted.filter_map(|link| page.join(link).ok()).filter(|url| matches!(url.scheme(), "http" | "https"));
    let whole = urls.map(|mut url| {
        url.set_fragment(None);
        url
    });
    whole.collect()
}
