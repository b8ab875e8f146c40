//! stub
use crate::attributes::{Attribute, Attributes};
use std::fmt;
/// stub
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expression(String);
/// stub
#[derive(Clone, Debug)]
pub struct InvalidExpression;
/// stub
#[derive(Clone, Debug)]
pub struct ExpressionFailed;
impl fmt::Display for InvalidExpression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bad")
    }
}
impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
#[allow(missing_docs)]
impl Expression {
    pub fn compile_with(text: &str, _names: &[&str]) -> Result<Self, InvalidExpression> {
        Ok(Self(text.into()))
    }
    pub fn attributes(&self) -> impl Iterator<Item = &Attribute> {
        [].iter()
    }
    pub fn constant(&self) -> Option<bool> {
        None
    }
    pub fn holds(&self, _request: &dyn Attributes) -> Result<bool, ExpressionFailed> {
        Ok(true)
    }
    pub fn count(&self, _request: &dyn Attributes) -> Result<u64, ExpressionFailed> {
        Ok(1)
    }
    pub fn text_of(&self, _request: &dyn Attributes) -> Result<String, ExpressionFailed> {
        Ok(String::new())
    }
}
