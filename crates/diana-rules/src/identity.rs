//! stub
/// stub
#[derive(Debug)]
pub struct Identity;
/// stub
#[derive(Debug)]
pub struct Identified;
