//! The expansion of a limited function: the same function, with a [check](crate::generated_check) before its first statement.
//!
//! ```text
//!  async fn search(user: &User) -> Result<Page, Error> {
//!      {
//!          static SITE: CallSite = ..;                the options of the attribute
//!          let mut key = Key::new();                  the key of the call
//!          key.part(&user.id);
//!          if let Err(limited) = SITE.check(&key) {   or `wait`, or `wait_async(..).await`
//!              return FromLimited::limited(limited);  or `on_limit(limited)`
//!          }
//!      }
//!      ..                                             the original body
//!  }
//! ```
//!
//! All instances of a generic function share a static in it; each attribute has one.

use crate::body_kind::{self, BodyKind};
use crate::generated_check::Check;
use crate::options::{Kind, Options};
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Item, ItemFn, Path, Result, ReturnType, Signature, Stmt, Type};

/// Returns the function with its limit, or the unchanged function and the error.
pub(crate) fn expand(kind: Kind, options: TokenStream, item: TokenStream) -> TokenStream {
    limited(kind, options, item.clone()).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#item #error)
    })
}

/// Returns the unchanged function, and the error that names the missing feature.
pub(crate) fn without_rules(item: TokenStream) -> TokenStream {
    let problem = "`#[limited]` needs the feature `rules` of `diana-limit`: enable it, or use `#[rate_limit]` or \
                   `#[count_limit]`";
    let error = Error::new(Span::call_site(), problem).into_compile_error();
    quote!(#item #error)
}

fn limited(kind: Kind, options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut function = function(kind, item)?;
    let options = Options::parse(kind, options)?;
    let (body_kind, body) = body_kind::find_body(&function.sig, &mut function.block);
    if body_kind == BodyKind::Blocking && body_kind::returns_a_future(&function.sig) {
        let problem = "the returned future is not created in this function, so it can't check the limit; write an \
                       `async fn`, or end with `async move { .. }` or `Box::pin(async move { .. })`";
        return Err(Error::new_spanned(&function.sig.output, problem));
    }
    let limited = Ident::new("__diana_limited", Span::mixed_site());
    let denial = denial(&options, &function.sig, body_kind, &limited)?;
    let check = Check::new(&options, &function.sig, body_kind)?.write(&limited, &denial);
    // Items may come first.
    let first = body.stmts.iter().take_while(|statement| matches!(statement, Stmt::Item(_))).count();
    body.stmts.insert(first, Stmt::Expr(Expr::Verbatim(check), None));
    Ok(function.into_token_stream())
}

/// Parses the function that the attribute is on.
fn function(kind: Kind, item: TokenStream) -> Result<ItemFn> {
    let name = kind.name();
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        // A syntax error in a function is reported as such.
        Err(error) => match syn::parse2::<Item>(item) {
            Ok(item) => {
                let problem = format!("`{name}` needs a function or method with a body; write it above an `fn`");
                return Err(Error::new(item_span(&item), problem));
            }
            Err(_) => return Err(error),
        },
    };
    match function.sig.constness {
        Some(constness) => {
            let problem = format!("`{name}` can't count the calls of a `const fn`; write `fn`");
            Err(Error::new(constness.span(), problem))
        }
        None => Ok(function),
    }
}

/// Returns the span for the error if the item is not a function.
fn item_span(item: &Item) -> Span {
    match item {
        Item::Struct(item) => item.ident.span(),
        Item::Enum(item) => item.ident.span(),
        Item::Trait(item) => item.ident.span(),
        Item::Mod(item) => item.ident.span(),
        Item::Impl(item) => item.impl_token.span(),
        other => other.span(),
    }
}

/// Returns the expression for a denied call.
fn denial(options: &Options, signature: &Signature, body_kind: BodyKind, limited: &Ident) -> Result<TokenStream> {
    const HELP: &str = "and has no `on_limit`: return `Result<_, E>` with an `E: From<diana::Limited>`, or write \
                        `on_limit = path`, for a `fn(diana::Limited)` with the return type of this function";
    if let Some(path) = &options.on_limit {
        return Ok(quote_spanned!(path.span()=> #path(#limited)));
    }
    let name = &signature.ident;
    let convert = |span| {
        let root = located_at(&options.root, span);
        quote_spanned!(span=> #root::limited::FromLimited::limited(#limited))
    };
    match &signature.output {
        // The compiler knows the output of a future.
        _ if body_kind == BodyKind::Future => Ok(convert(name.span())),
        ReturnType::Default => Err(Error::new(name.span(), format!("`{name}` returns nothing, {HELP}"))),
        ReturnType::Type(_, returned) => match &**returned {
            Type::Array(_)
            | Type::BareFn(_)
            | Type::ImplTrait(_)
            | Type::Never(_)
            | Type::Ptr(_)
            | Type::Reference(_)
            | Type::Slice(_)
            | Type::Tuple(_) => {
                Err(Error::new_spanned(returned, format!("`{name}` does not return a `Result`, {HELP}")))
            }
            // The compiler resolves type aliases, and the trait has the error message.
            _ => Ok(convert(returned.span())),
        },
    }
}

/// Returns a path with another span for errors.
fn located_at(path: &Path, span: Span) -> TokenStream {
    let moved = path.to_token_stream().into_iter().map(|mut token| {
        token.set_span(token.span().located_at(span));
        token
    });
    moved.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_the_feature_the_function_is_unchanged_and_the_error_names_the_feature() {
        let expanded = without_rules(quote!(
            fn send() {}
        ))
        .to_string();
        assert!(expanded.starts_with("fn send () { }"), "{expanded}");
        assert!(
            expanded.contains("compile_error") && expanded.contains("feature `rules` of `diana-limit`"),
            "{expanded}"
        );
    }
}
