//! The expansion of a limited function: the same function, with a [check](crate::question) before its first statement.
//!
//! ```text
//!  async fn search(user: &User) -> Result<Page, Error> {
//!      {
//!          static SITE: Site = ..;                    what the attribute says
//!          let mut key = Key::new();                  whose call it is
//!          key.part(&user.id);
//!          if let Err(limited) = SITE.check(&key) {   or `wait`, or `wait_async(..).await`
//!              return FromLimited::limited(limited);  or `on_limit(limited)`
//!          }
//!      }
//!      ..                                             the body as it was
//!  }
//! ```
//!
//! All instances of a generic function share a static in it; each attribute has one.

use crate::body::{self, Manner};
use crate::options::{Kind, Options};
use crate::question::Question;
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
    let problem = "`#[limited]` names a rule of a rule file: enable the feature `rules` of `diana-limit`, or use `#[rate_limit]` \
                   or `#[count_limit]`";
    let error = Error::new(Span::call_site(), problem).into_compile_error();
    quote!(#item #error)
}

fn limited(kind: Kind, options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut function = function(kind, item)?;
    let options = Options::read(kind, options)?;
    let (manner, body) = body::of(&function.sig, &mut function.block);
    if manner == Manner::Blocking && body::returns_a_future(&function.sig) {
        let problem = "the future that is returned is not made here, so it can't be asked in it whether the call is limited; write \
                       an `async fn`, or end with `async move { .. }` or `Box::pin(async move { .. })`";
        return Err(Error::new_spanned(&function.sig.output, problem));
    }
    let limited = Ident::new("__diana_limited", Span::mixed_site());
    let refusal = refusal(&options, &function.sig, manner, &limited)?;
    let question = Question::new(&options, &function.sig, manner)?.write(&limited, &refusal);
    // Items may come first.
    let first = body.stmts.iter().take_while(|statement| matches!(statement, Stmt::Item(_))).count();
    body.stmts.insert(first, Stmt::Expr(Expr::Verbatim(question), None));
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
                let problem = format!("`{name}` goes on a function or a method with a body; write it above an `fn`");
                return Err(Error::new(named(&item), problem));
            }
            Err(_) => return Err(error),
        },
    };
    match function.sig.constness {
        Some(constness) => {
            let problem = format!("`{name}` counts calls, which a `const fn` can't; write `fn`");
            Err(Error::new(constness.span(), problem))
        }
        None => Ok(function),
    }
}

/// Returns the span for the error if the item is not a function.
fn named(item: &Item) -> Span {
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
fn refusal(options: &Options, signature: &Signature, manner: Manner, limited: &Ident) -> Result<TokenStream> {
    const WRITE: &str = "so it can't say that a call is limited: return `Result<_, E>` with an `E: From<diana::Limited>`, or write \
                         `on_limit = path`, for a `fn(diana::Limited)` that makes what this function returns";
    if let Some(path) = &options.on_limit {
        return Ok(quote_spanned!(path.span()=> #path(#limited)));
    }
    let name = &signature.ident;
    let says = |span| {
        let root = located_at(&options.root, span);
        quote_spanned!(span=> #root::limited::FromLimited::limited(#limited))
    };
    match &signature.output {
        // The compiler knows the output of a future.
        _ if manner == Manner::Future => Ok(says(name.span())),
        ReturnType::Default => Err(Error::new(name.span(), format!("`{name}` returns nothing, {WRITE}"))),
        ReturnType::Type(_, returned) => match &**returned {
            Type::Array(_)
            | Type::BareFn(_)
            | Type::ImplTrait(_)
            | Type::Never(_)
            | Type::Ptr(_)
            | Type::Reference(_)
            | Type::Slice(_)
            | Type::Tuple(_) => Err(Error::new_spanned(returned, format!("`{name}` returns no `Result`, {WRITE}"))),
            // The compiler resolves type aliases, and the trait has the error message.
            _ => Ok(says(returned.span())),
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
    fn without_the_feature_the_function_stays_and_the_error_names_it() {
        let written = without_rules(quote!(
            fn send() {}
        ))
        .to_string();
        assert!(written.starts_with("fn send () { }"), "{written}");
        assert!(written.contains("compile_error") && written.contains("feature `rules` of `diana-limit`"), "{written}");
    }
}
