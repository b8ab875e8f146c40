//! The headers that the rules and `identity` read, and the other names under which services find them.
//!
//! WSGI, CGI and PHP write `-` in a header's name as `_`, so they read `x_account_id` and `x-account-id` as one header. PHP does
//! the same with `.`. A client could send both: one value for the rules, and another one for the service.

use diana_rules::attributes::Attribute;
use diana_rules::file::RuleFile;
use hashbrown::HashSet;

/// The characters that services write as one.
const SEPARATORS: [char; 3] = ['-', '_', '.'];
/// The separators that are seldom in the name of a header.
const OTHERS: [char; 2] = ['_', '.'];

/// The headers that rules and `identity` read.
#[derive(Debug, Default)]
pub struct ReadHeaders {
    names: HashSet<Box<str>>,
    /// The names with `-` for the other separators; only of those that have one.
    dashed: HashSet<Box<str>>,
    /// Whether rules read a header with `_` or `.` in its name, so that one with `-` may be its alias.
    has_others: bool,
}

impl ReadHeaders {
    pub(super) fn of(file: &RuleFile) -> Self {
        let mut read = Self::default();
        let rules = file.rules.iter().flat_map(|rule| rule.attributes().chain(rule.matches.read_attributes()));
        for attribute in rules.chain(file.identity.attributes()) {
            if let Attribute::Header(name) = attribute {
                read.add(name);
            }
        }
        read
    }

    fn add(&mut self, name: &str) {
        if name.contains(SEPARATORS) {
            self.names.insert(name.into());
            self.dashed.insert(name.replace(OTHERS, "-").into());
            self.has_others |= name.contains(OTHERS);
        }
    }

    /// Returns `true` if no header can be an alias of one that is read.
    #[inline]
    pub fn have_no_alias(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns `true` if the rules do not read the header of this name, in lower case, but one that WSGI, CGI and PHP read
    /// as the same: `x_account_id` or `x.account.id` if they read `x-account-id`.
    ///
    /// ```
    /// use diana::RuleSet;
    /// use diana_rules::{Document, Registry, RuleFile};
    ///
    /// let document = Document::new("diana.yaml", "rules: [{name: accounts, by: header(x-account-id), limit: 5/s}]");
    /// let rules = RuleSet::new(&RuleFile::read(&document, &Registry::default())?);
    /// let is_alias = |name| rules.read_headers().is_alias(name);
    /// assert!(is_alias("x_account_id") && is_alias("x_account-id") && is_alias("x.account.id"));
    /// assert!(!is_alias("x-account-id") && !is_alias("x_account"));
    /// # Ok::<(), diana_rules::Problems>(())
    /// ```
    pub fn is_alias(&self, name: &str) -> bool {
        (self.has_others || name.contains(OTHERS))
            && name.contains(SEPARATORS)
            && self.dashed.contains(&*name.replace(OTHERS, "-"))
            && !self.names.contains(name)
    }
}
