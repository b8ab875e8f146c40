//! stub
use crate::document::node::Node;
use crate::problem::Problem;
/// stub
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity;
#[allow(missing_docs)]
impl Identity {
    pub fn read(_node: &Node, _problems: &mut Vec<Problem>) -> Option<Self> {
        Some(Self)
    }
    pub fn names(&self) -> impl Iterator<Item = &str> {
        ["account", "device"].into_iter()
    }
    pub fn of<'a>(&self, request: &'a dyn crate::Attributes) -> crate::identity::Identified<'a> {
        Identified(request)
    }
    pub fn knows_tokens(&self) -> bool {
        true
    }
}

#[allow(missing_docs)]
pub struct Identified<'a>(&'a dyn crate::Attributes);
impl crate::Attributes for Identified<'_> {
    fn get(&self, a: &crate::Attribute) -> Option<std::borrow::Cow<'_, str>> {
        self.0.get(a)
    }
    fn ip(&self) -> Option<std::net::IpAddr> {
        self.0.ip()
    }
}
