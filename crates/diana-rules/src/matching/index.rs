//! Finds the rules that match a request, without checking each of them.
//!
//! # How it works
//! Checking ten thousand rules one by one is slow. But most rules differ in host and path, and both can be looked up:
//! first the host (the exact name, then its parent domains, then the rules for any host), and for each of them a tree
//! of path segments. A walk down the tree collects the rules on its way:
//!
//! ```text
//!           any host                          /users/{id}/orders    /users/**   /files/*.pdf
//!              │
//!      ┌───────┼──────────┐
//!   "users"  "files"    (any one)
//!     │  └ **    └ *.pdf
//!   (any one)
//!     └ "orders"
//! ```
//!
//! Rules with the same host and path that need different values of one header, or of one entry of a descriptor, are looked
//! up by that value. The other conditions (methods, addresses, expressions) are checked only for the rules that were found.
//!
//! # What always holds (tests/it/index_laws.rs)
//! The index finds the same rules as checking them one by one does, in the order of the file.

use super::descriptor::DescriptorMatch;
use super::host::HostPattern;
use super::name_map::NameMap;
use super::path::{PathPattern, Segment, after_segment, segments, without_slashes};
use super::{IndexedMatch, Match, RequestView};
use crate::attributes::{Attribute, SEVERAL};
use hashbrown::HashMap;

/// A rule, by its number, that may match the request.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// The number of the rule.
    pub rule: u32,
    /// What the index has compared already.
    pub indexed: IndexedMatch,
}

/// The maximum length of a host name.
const LONGEST_NAME: usize = 253;

/// The rules that may match a request.
pub type Candidates = Vec<Candidate>;

/// Rules by host and path.
#[derive(Debug, Default)]
pub struct Index {
    any_host: Tree,
    exact: NameMap<Tree>,
    below: NameMap<Tree>,
    /// Whether there are rules for hosts.
    has_hosts: bool,
}

/// Rules by path.
#[derive(Debug, Default)]
struct Tree {
    /// Rules for exactly this path.
    ends: Bucket,
    /// Rules for this path and all paths below it.
    below: Bucket,
    literal: NameMap<Tree>,
    globs: Vec<(Segment, Tree)>,
    any_one: Option<Box<Tree>>,
    step: Step,
}

/// How a walk goes on from a node. Known once all rules are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Step {
    /// It ends: there are no rules for this path, and no children.
    #[default]
    End,
    /// All children are a few names, of which one can match: the path is compared with them, without looking for the end of
    /// its segment first.
    FewNames,
    /// Several children may match.
    Search,
}

/// Rules by the value of an attribute.
type ByValue = HashMap<Box<str>, Vec<Candidate>>;

/// Rules with the same host and path.
#[derive(Debug, Default)]
struct Bucket {
    plain: Vec<Candidate>,
    by_value: Vec<(Attribute, ByValue)>,
}

impl Index {
    /// Indexes the matches of rules; the first one has number 0.
    pub fn new<'a>(rules: impl Iterator<Item = &'a Match>) -> Self {
        let mut index = Self::default();
        for (number, matches) in rules.enumerate().filter(|(_, matches)| matches.call.is_none()) {
            let rule = u32::try_from(number).unwrap_or(u32::MAX);
            if matches.hosts.is_empty() {
                index.any_host.add(matches, rule, IndexedMatch::HostAndPath);
            }
            for host in &matches.hosts {
                match host {
                    HostPattern::Exact(name) => {
                        index.exact.get_or_add(name).add(matches, rule, IndexedMatch::HostAndPath);
                    }
                    HostPattern::Subdomains(name) => {
                        index.below.get_or_add(name).add(matches, rule, IndexedMatch::HostAndPath);
                    }
                    HostPattern::Glob(_) => index.any_host.add(matches, rule, IndexedMatch::None),
                }
            }
        }
        index.has_hosts = !(index.exact.is_empty() && index.below.is_empty());
        index.any_host.plan();
        index.exact.values_mut().chain(index.below.values_mut()).for_each(Tree::plan);
        index
    }

    /// Collects the rules that may match the request, in the order of the file.
    #[inline]
    pub fn candidates(&self, view: &RequestView<'_>, candidates: &mut Candidates) {
        self.any_host.collect(view, candidates);
        if self.has_hosts {
            self.collect_by_host(view, candidates);
        }
        // A rule with several paths, and a path with several forms, may be found more than once.
        if !candidates.is_sorted_by(|one, next| one.rule < next.rule) {
            // Indexed matches first.
            candidates.sort_unstable_by_key(|candidate| (candidate.rule, candidate.indexed == IndexedMatch::None));
            candidates.dedup_by_key(|candidate| candidate.rule);
        }
    }

    fn collect_by_host(&self, view: &RequestView<'_>, candidates: &mut Candidates) {
        let Some(host) = view.host() else { return };
        if let Some(tree) = self.exact.get(host) {
            tree.collect_of_host(view, candidates);
        }
        if self.below.is_empty() {
            return;
        }
        let mut rest = host;
        while let Some((_, above)) = rest.split_once('.') {
            // A subdomain has at least one more label, and no name is longer than this.
            let is_below = host.len() - above.len() > 1 && above.len() <= LONGEST_NAME;
            if is_below && let Some(tree) = self.below.get(above) {
                tree.collect_of_host(view, candidates);
            }
            rest = above;
        }
    }
}

impl Tree {
    fn add(&mut self, matches: &Match, rule: u32, indexed: IndexedMatch) {
        if matches.paths.is_empty() {
            self.below.add(matches, Candidate { rule, indexed });
        }
        for path in &matches.paths {
            self.add_path(path, matches, Candidate { rule, indexed });
        }
    }

    fn add_path(&mut self, path: &PathPattern, matches: &Match, mut candidate: Candidate) {
        let mut tree = self;
        for (at, segment) in path.segments().iter().enumerate() {
            tree = match segment {
                Segment::Any => {
                    // Segments after `**` are not in the tree.
                    if at + 1 < path.segments().len() {
                        candidate.indexed = IndexedMatch::None;
                    }
                    return tree.below.add(matches, candidate);
                }
                Segment::One(_) => tree.any_one.get_or_insert_default(),
                Segment::Text(glob) => match glob.literal() {
                    Some(text) => tree.literal.get_or_add(text),
                    None => {
                        let known = tree.globs.iter().position(|(known, _)| known == segment);
                        let index = known.unwrap_or_else(|| {
                            tree.globs.push((segment.clone(), Self::default()));
                            tree.globs.len() - 1
                        });
                        &mut tree.globs[index].1
                    }
                },
            };
        }
        tree.ends.add(matches, candidate);
    }

    /// Plans the walk from this node and all below it.
    fn plan(&mut self) {
        let is_search = self.literal.is_many() || !self.globs.is_empty() || self.any_one.is_some();
        let is_end = self.literal.is_empty() && self.ends.is_empty();
        self.step = match (is_search, is_end) {
            (true, _) => Step::Search,
            (false, true) => Step::End,
            (false, false) => Step::FewNames,
        };
        let others = self.globs.iter_mut().map(|(_, tree)| tree).chain(self.any_one.as_deref_mut());
        self.literal.values_mut().chain(others).for_each(Self::plan);
    }

    #[inline(never)]
    fn collect_of_host(&self, view: &RequestView<'_>, candidates: &mut Candidates) {
        self.collect(view, candidates);
    }

    #[inline(always)]
    fn collect(&self, view: &RequestView<'_>, candidates: &mut Candidates) {
        self.below.collect(view, candidates);
        if self.step == Step::End {
            return;
        }
        if let Some(path) = view.path() {
            self.walk_names(path, view, candidates, Self::walk);
        }
        for path in view.other_paths() {
            self.walk(path, view, candidates);
        }
    }

    /// Walks down by the segments of a path. No deeper than the longest pattern, whatever the path.
    #[inline(never)]
    fn walk(&self, path: &str, view: &RequestView<'_>, candidates: &mut Candidates) {
        self.walk_names(path, view, candidates, Self::search);
    }

    /// Walks down by the segments of a path, and calls `search` with the rest of it where several children may match. It is
    /// inlined, since most rules need no more than these steps.
    #[inline(always)]
    fn walk_names(
        &self,
        path: &str,
        view: &RequestView<'_>,
        candidates: &mut Candidates,
        search: impl Fn(&Self, &str, &RequestView<'_>, &mut Candidates),
    ) {
        let (mut tree, mut remaining) = (self, path);
        while tree.step != Step::End {
            remaining = without_slashes(remaining);
            if remaining.is_empty() {
                return tree.ends.collect(view, candidates);
            }
            if tree.step == Step::Search {
                return search(tree, remaining, view, candidates);
            }
            let mut names = tree.literal.few().iter();
            let child = names.find_map(|(name, child)| Some((child, after_segment(remaining, name)?)));
            let Some((child, rest)) = child else { return };
            child.below.collect(view, candidates);
            (tree, remaining) = (child, rest);
        }
    }

    /// Goes on with all children that match the first segment of the remaining path.
    #[inline(always)]
    fn search(&self, remaining: &str, view: &RequestView<'_>, candidates: &mut Candidates) {
        let mut rest = segments(remaining);
        let Some(segment) = rest.next() else { return };
        let step = |tree: &Self, candidates: &mut Candidates| {
            tree.below.collect(view, candidates);
            tree.walk(rest.remaining(), view, candidates);
        };
        if let Some(tree) = self.literal.get(segment) {
            step(tree, candidates);
        }
        for (glob, tree) in &self.globs {
            if glob.fits(segment) {
                step(tree, candidates);
            }
        }
        if let Some(tree) = &self.any_one {
            step(tree, candidates);
        }
    }
}

impl Bucket {
    fn add(&mut self, matches: &Match, candidate: Candidate) {
        let exact = matches.headers.iter().find(|header| header.values.iter().all(|value| value.literal().is_some()));
        if let Some(header) = exact {
            self.add_by(&header.header, header.values.iter().filter_map(|value| value.literal()), candidate);
        } else if let Some((key, values)) = matches.descriptor.as_ref().and_then(DescriptorMatch::lookup) {
            self.add_by(&Attribute::Descriptor(key.into()), values, candidate);
        } else if !matches.domains.is_empty() {
            self.add_by(&Attribute::Domain, matches.domains.iter().map(|domain| &**domain), candidate);
        } else {
            self.plain.push(candidate);
        }
    }

    fn add_by<'a>(&mut self, attribute: &Attribute, values: impl Iterator<Item = &'a str>, candidate: Candidate) {
        let known = self.by_value.iter().position(|(known, _)| known == attribute);
        let index = known.unwrap_or_else(|| {
            self.by_value.push((attribute.clone(), HashMap::new()));
            self.by_value.len() - 1
        });
        for value in values {
            self.by_value[index].1.entry(value.into()).or_default().push(candidate);
        }
    }

    fn is_empty(&self) -> bool {
        self.plain.is_empty() && self.by_value.is_empty()
    }

    #[inline]
    fn collect(&self, view: &RequestView<'_>, candidates: &mut Candidates) {
        self.plain.iter().for_each(|candidate| candidates.push(*candidate));
        if !self.by_value.is_empty() {
            self.collect_by_value(view, candidates);
        }
    }

    #[inline(never)]
    fn collect_by_value(&self, view: &RequestView<'_>, candidates: &mut Candidates) {
        let request = view.request;
        for (attribute, values) in &self.by_value {
            if let Attribute::Descriptor(key) = attribute {
                // A descriptor may have several entries with this key.
                let entries = request.descriptor().iter().filter(|entry| *entry.key == **key);
                entries
                    .filter_map(|entry| values.get(&*entry.value))
                    .for_each(|rules| candidates.extend_from_slice(rules));
                continue;
            }
            match request.get(attribute) {
                // The service may use any of them.
                Some(value) if value == SEVERAL => {
                    values.values().for_each(|rules| candidates.extend_from_slice(rules));
                }
                Some(value) => values.get(&*value).into_iter().for_each(|rules| candidates.extend_from_slice(rules)),
                None => {}
            }
        }
    }
}
