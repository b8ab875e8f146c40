//! Routes: `routes: [{match: {host: api.example.com, path: /v1/**}, upstream: http://10.0.0.1}]`.
//!
//! The first matching route is used, so a duplicate of an earlier route is an error.

use super::UpstreamGroup;
use diana_rules::Problem;
use diana_rules::document::{Node, Span, Value};
use diana_rules::map_reader::MapReader;
use diana_rules::matching::Match;

/// Upstreams for some hosts and paths.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Route {
    /// The hosts and paths that the route matches.
    pub matches: Match,
    /// The upstreams.
    pub upstream: UpstreamGroup,
}

pub(super) const FIELDS: [&str; 5] = ["match", "upstream", "balance", "health", "retries"];
/// The fields that a route must have.
pub(super) const REQUIRED: [&str; 2] = ["match", "upstream"];
/// The maximum number of routes, since a request may check all of them.
pub(super) const MAX_ROUTES: usize = 1_000;

impl Route {
    /// Reads all routes.
    pub(super) fn parse_all(node: &Node, problems: &mut Vec<Problem>) -> Vec<Self> {
        let Value::List(items) = &node.value else {
            let message = format!("invalid `routes`: expected a list, found {}", node.value.kind());
            problems.push(Problem::new(node.span, message).expected("start each route with `- match: ...`"));
            return Vec::new();
        };
        if items.len() > MAX_ROUTES {
            let problem = Problem::new(node.span, format!("too many routes: {}", items.len()));
            problems.push(problem.expected(format!("expected at most {MAX_ROUTES}")));
            return Vec::new();
        }
        let mut routes: Vec<Self> = Vec::with_capacity(items.len());
        for item in items {
            let before = problems.len();
            let Some((route, span)) = Self::parse(item, problems) else { continue };
            if problems.len() > before {
                continue;
            }
            let hides = |earlier: &Self| earlier.matches == route.matches || earlier.matches.matches_every_path();
            if let Some(earlier) = routes.iter().find(|earlier| hides(earlier)) {
                let message = format!("unreachable route: an earlier route matches {}", earlier.matches);
                problems.push(Problem::new(span, message).expected("remove one of the two"));
            }
            routes.push(route);
        }
        routes
    }

    /// Reads a route and the location of its `match`.
    fn parse(node: &Node, problems: &mut Vec<Problem>) -> Option<(Self, Span)> {
        let mut fields = MapReader::of(node, "route", FIELDS, problems)?;
        let matches = fields.require("match", problems).and_then(|node| {
            let matches = Match::parse_route(node, problems)?;
            if matches!(&node.value, Value::Map(entries) if entries.is_empty()) {
                let problem = Problem::new(node.span, "this route matches all requests");
                problems.push(problem.expected("use `upstream` beside `routes`, or add a `host` or `path`"));
            }
            Some((matches, node.span))
        });
        let upstream = fields.require("upstream", problems);
        let group = UpstreamGroup::parse(upstream, &mut fields, problems);
        fields.finish(problems);
        let (matches, span) = matches?;
        upstream.map(|_| (Self { matches, upstream: group }, span))
    }
}
