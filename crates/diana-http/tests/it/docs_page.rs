//! The page "Diana in your server" contains the examples unchanged.

const PAGE: &str = include_str!("../../../../docs/tasks/in-your-server.md");

#[test]
fn the_page_contains_the_examples() {
    for example in [
        include_str!("../../examples/axum_program.rs"),
        include_str!("../../examples/axum_server.rs"),
        include_str!("../../examples/hyper_server.rs"),
        include_str!("../../examples/tonic_server.rs"),
    ] {
        let (_, rest) = example.split_once("// docs: begin\n").unwrap();
        let (part, _) = rest.split_once("// docs: end\n").unwrap();
        // The page omits the visibility.
        let part = part.replace("pub(crate) ", "");
        assert!(PAGE.contains(&format!("```rust,ignore\n{}\n```\n", part.trim())), "missing in the page:\n{part}");
    }
}
