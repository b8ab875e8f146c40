//! The README is short and correct: its files are valid, and its nginx configuration works.

use crate::support::block;
use crate::support::client::Client;
use crate::support::program::Diana;
use crate::support::upstream::Upstream;
use diana_rules::{Document, RuleFile};
use diana_testing::NginxServer;

const README: &str = include_str!("../../../../README.md");

/// The code blocks of a page: the info string and the text.
fn blocks(page: &str) -> Vec<&str> {
    page.split("```").skip(1).step_by(2).collect()
}

fn replaced(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "no {from:?} in\n{text}");
    text.replace(from, to)
}

#[test]
fn the_readme_is_short_and_begins_with_the_two_commands() {
    assert!(README.lines().count() <= 150, "{} lines", README.lines().count());
    let first = block(README, "# Diana\n", "console");
    let commands = first.lines().map(|line| line.split("  ").next().unwrap()).collect::<Vec<_>>();
    assert_eq!(commands, ["$ cargo run --release -- serve", "$ cargo xtask test"]);
}

#[test]
fn the_files_of_the_readme_are_valid() {
    let files = blocks(README).into_iter().filter_map(|block| block.strip_prefix("yaml\n")).collect::<Vec<_>>();
    assert_eq!(files.len(), 3);
    for text in files {
        let file = RuleFile::read_with(&Document::new("diana.yaml", text), &diana_server::registry(), |_| None);
        let file = file.unwrap_or_else(|problems| panic!("{problems}\n{text}"));
        assert!(!file.rules.is_empty(), "a file without a rule:\n{text}");
    }
}

#[test]
fn nginx_limits_as_in_the_readme() {
    let section = "\n## Ask Diana from nginx or Envoy\n";
    let rules = replaced(block(README, section, "yaml"), "127.0.0.1:8082", "$LISTEN");
    let diana = Diana::serve(&replaced(&rules, "limit: 100/s", "limit: 2/h"));
    let upstream = Upstream::echo();
    let nginx = NginxServer::start_file(|port| {
        let file = replaced(block(README, section, "nginx"), "127.0.0.1:8082", &format!("127.0.0.1:{}", diana.port()));
        let file = replaced(&file, "127.0.0.1:3000", &format!("127.0.0.1:{}", upstream.port()));
        replaced(&file, "listen 80;", &format!("listen 127.0.0.1:{port};"))
    });
    let nginx = nginx.unwrap();
    let status = |from: u8| {
        let request = "POST /orders HTTP/1.1\r\nhost: shop\r\ncontent-length: 2\r\n\r\nhi";
        Client::connect_from([127, 0, 0, from], nginx.port()).send(request).response().status
    };
    assert_eq!([1, 1, 1, 2].map(status), [200, 200, 429, 200]);
    assert_eq!((upstream.count(), &*upstream.last().body), (3, &b"hi"[..]));
}
