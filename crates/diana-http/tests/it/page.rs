//! The page "Diana in your server" contains the examples unchanged.

const PAGE: &str = include_str!("../../../../docs/in-your-server.md");

#[test]
fn the_page_shows_the_examples_as_they_are() {
    for example in [
        include_str!("../../examples/axum_server.rs"),
        include_str!("../../examples/hyper_server.rs"),
        include_str!("../../examples/tonic_server.rs"),
        include_str!("../../examples/outgoing_client.rs"),
        include_str!("../../../../examples/polite_crawler/client.rs"),
    ] {
        let (_, rest) = example.split_once("// docs: begin\n").unwrap();
        let (part, _) = rest.split_once("// docs: end\n").unwrap();
        // How far a name reaches is of no interest there.
        let part = part.replace("pub(crate) ", "");
        assert!(PAGE.contains(&format!("```rust,ignore\n{}\n```\n", part.trim())), "the page has not got:\n{part}");
    }
}
