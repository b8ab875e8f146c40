//! Descriptions of the key that a limit counts by.

use super::KeySpec;
use super::bytes::PrefixLengths;
use super::part::Part;
use crate::attributes::Attribute;

impl KeySpec {
    /// Describes the key as `each account`, `everyone together`, `each combination of account and address`.
    pub(crate) fn describe(&self) -> String {
        let nouns = self.parts.iter().map(noun).collect::<Vec<_>>();
        match &*nouns {
            [] => "everyone together".to_owned(),
            _ if self.is_each_request() => "each request on its own".to_owned(),
            [one] => format!("each {one}"),
            [first @ .., last] => format!("each combination of {} and {last}", first.join(", ")),
        }
    }

    /// Describes the parts that a request may be missing, without those that every request has, and without parameters
    /// that every path of the rule has.
    pub(crate) fn may_be_missing(&self, is_in_path: impl Fn(&str) -> bool) -> Option<String> {
        let missing = self.optional_parts(is_in_path).map(noun).collect::<Vec<_>>();
        (!missing.is_empty()).then(|| missing.join(" or "))
    }

    /// Returns the attributes of each of these parts, none of which a request without that part has.
    pub(crate) fn missing_attributes(&self, is_in_path: impl Fn(&str) -> bool) -> Vec<Vec<Attribute>> {
        let attributes = |part: &Part| match part {
            Part::Of(attribute) => vec![attribute.clone()],
            Part::Named(name, attribute) => vec![Attribute::Named(name.clone()), attribute.clone()],
            _ => Vec::new(),
        };
        self.optional_parts(is_in_path).map(attributes).collect()
    }

    fn optional_parts(&self, is_in_path: impl Fn(&str) -> bool) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(move |part| match part {
            Part::Address(_) | Part::Request | Part::Of(Attribute::Path | Attribute::Method | Attribute::Host) => false,
            Part::Of(Attribute::Param(name)) => !is_in_path(name),
            _ => true,
        })
    }
}

fn noun(part: &Part) -> String {
    match part {
        Part::Of(attribute) => match attribute {
            Attribute::Ip => "address".to_owned(),
            Attribute::Path => "path".to_owned(),
            Attribute::Header(name) => format!("header {name}"),
            Attribute::Cookie(name) => format!("cookie {name}"),
            Attribute::Query(name) => format!("query parameter {name}"),
            Attribute::Jwt(name) => format!("{name} of the token"),
            Attribute::Param(name) => format!("{{{name}}} of the path"),
            Attribute::Descriptor(key) => format!("descriptor entry {key}"),
            Attribute::Domain | Attribute::Method | Attribute::Host | Attribute::Scheme | Attribute::Named(_) => {
                attribute.to_string()
            }
        },
        Part::Named(name, _) => name.to_string(),
        Part::Address(PrefixLengths { v4, v6 }) => {
            let network = if *v4 == 32 { "address".to_owned() } else { format!("/{v4} network") };
            if *v6 == 128 { network } else { format!("{network} or IPv6 /{v6}") }
        }
        Part::Expression(expression) => format!("value of `{expression}`"),
        Part::Registered(name, _) => (*name).to_owned(),
        Part::Request => "request".to_owned(),
    }
}
