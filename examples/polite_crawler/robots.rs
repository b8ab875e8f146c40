//! The paths that a host disallows: the `Disallow` lines of its `robots.txt` for all user agents.

use super::fetch::body;
use reqwest::Url;
use reqwest_middleware::ClientWithMiddleware;

/// The prefixes of disallowed paths.
pub(crate) struct Robots(Vec<String>);

impl Robots {
    /// Fetches the file from a host. A host without one allows everything.
    pub(crate) async fn fetch(client: &ClientWithMiddleware, root: &Url) -> Result<Self, Box<dyn std::error::Error>> {
        let response = client.get(root.join("/robots.txt")?).send().await?;
        let text = if response.status().is_success() { body(response).await? } else { String::new() };
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let (mut disallowed, mut is_for_all) = (Vec::new(), false);
        for line in text.lines() {
            match line.split_once(':').map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim())) {
                Some((name, value)) if name == "user-agent" => is_for_all = value == "*",
                Some((name, path)) if name == "disallow" && is_for_all && !path.is_empty() => {
                    disallowed.push(path.to_owned());
                }
                _ => {}
            }
        }
        Self(disallowed)
    }

    pub(crate) fn allows(&self, url: &Url) -> bool {
        !self.0.iter().any(|path| url.path().starts_with(path))
    }
}
