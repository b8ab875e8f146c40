//! Finds a function's body, and whether it can wait asynchronously.

use quote::ToTokens;
use syn::{Block, Expr, ExprAsync, ReturnType, Signature, Stmt, Type, TypeParamBound};

/// The kind of a function's body.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// The function runs on the caller's thread.
    Blocking,
    /// The function is an `async fn`.
    Async,
    /// The function returns a future: its body is an `async` block, boxed or not. `async_trait` generates such functions.
    Future,
}

/// Returns how a function runs, and the block that is its body.
pub(crate) fn find_body<'a>(signature: &Signature, block: &'a mut Block) -> (BodyKind, &'a mut Block) {
    if signature.asyncness.is_some() {
        return (BodyKind::Async, block);
    }
    match future(block).is_some() {
        true => {
            (BodyKind::Future, future(block).map_or_else(|| unreachable!("checked before"), |inner| &mut inner.block))
        }
        false => (BodyKind::Blocking, block),
    }
}

/// Returns the `async` block at the end of a function.
fn future(block: &mut Block) -> Option<&mut ExprAsync> {
    match block.stmts.last_mut()? {
        Stmt::Expr(Expr::Async(inner), None) => Some(inner),
        Stmt::Expr(Expr::Call(call), None) if is_pin(&call.func) => match call.args.first_mut()? {
            Expr::Async(inner) => Some(inner),
            _ => None,
        },
        _ => None,
    }
}

/// Returns `true` for `Box::pin`, by any path.
fn is_pin(function: &Expr) -> bool {
    let Expr::Path(path) = function else { return false };
    let mut names = path.path.segments.iter().rev().map(|segment| &segment.ident);
    names.next().is_some_and(|name| name == "pin") && names.next().is_some_and(|name| name == "Box")
}

/// Returns `true` if a function's signature returns a future: then waiting in it must never block a thread.
pub(crate) fn returns_a_future(signature: &Signature) -> bool {
    let ReturnType::Type(_, returned) = &signature.output else { return false };
    match &**returned {
        Type::ImplTrait(of) => of.bounds.iter().any(is_future),
        Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let of = || last.arguments.to_token_stream().to_string();
            match last.ident.to_string().as_str() {
                "BoxFuture" | "LocalBoxFuture" => true,
                // `Pin` is used with other types, too.
                "Pin" => of().contains("Future"),
                _ => false,
            }
        }),
        _ => false,
    }
}

fn is_future(bound: &TypeParamBound) -> bool {
    let TypeParamBound::Trait(bound) = bound else { return false };
    bound.path.segments.last().is_some_and(|last| last.ident == "Future")
}
