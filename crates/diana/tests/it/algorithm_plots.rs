//! The pictures of `docs/explanations/algorithms.md` are what the code does, and what the page says about them.

#[path = "../../examples/algorithm_plots/plot.rs"]
mod plot;
#[path = "../../examples/algorithm_plots/traffic.rs"]
mod traffic;

use std::path::Path;
use std::time::Duration;

const PAGE: &str = include_str!("../../../../docs/explanations/algorithms.md");

#[test]
fn the_pictures_are_those_of_the_rules() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/explanations");
    let plots = plot::plots_of(PAGE).unwrap();
    assert_eq!(plots.len(), PAGE.matches("](../images/plots/").count());
    for (path, svg) in plots {
        let drawn = std::fs::read_to_string(folder.join(path)).unwrap_or_default();
        assert!(drawn == svg, "{path} differs from what its rule does; `cargo xtask docs plots` draws it again");
    }
}

/// Returns the largest number of requests that are served in a second.
fn most_in_a_second(fields: &str) -> usize {
    let mut times = traffic::run(fields).unwrap().iter().filter_map(traffic::Request::served).collect::<Vec<_>>();
    times.sort_unstable();
    let within =
        |from: Duration| times.iter().filter(move |time| from <= **time && **time < from + Duration::from_secs(1));
    times.iter().map(|from| within(*from).count()).max().unwrap()
}

#[test]
fn the_table_has_the_most_that_is_served_in_a_second() {
    for (fields, most) in [
        ("limit: 10/s", 20),
        ("limit: 10/s\nalgorithm: fixed_window", 20),
        ("limit: 10/s\nalgorithm: sliding_log", 10),
        ("limit: 10/s\nalgorithm: sliding_window\nedge: strict", 10),
        ("limit: 10/s\nalgorithm: leaky_bucket\nburst: 10", 10),
        ("limit: {rate: 10/s, algorithm: smooth_bursty, starts: empty}\nwait: 1s", 21),
        ("every: 100ms", 10),
    ] {
        assert!(most_in_a_second(fields) <= most, "{fields}");
    }
    assert_eq!(most_in_a_second("limit: 10/s\nalgorithm: fixed_window"), 20, "the edge of a window");
}
