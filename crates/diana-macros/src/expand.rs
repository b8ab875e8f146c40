//! What a limited function becomes: itself, with a question before its first statement.
//!
//! ```text
//!  async fn search(user: &User) -> Result<Page, Error> {
//!      let _pass = {
//!          static SITE: Site = ..;                    what the attribute says
//!          let mut key = Key::new();                  whose call it is
//!          key.part(&(user.id));
//!          match SITE.check(&key) {                   or `wait`, or `wait_async(..).await`
//!              Ok(pass) => pass,
//!              Err(limited) => return SaysLimited::limited(limited),      or `on_limit(limited)`
//!          }
//!      };
//!      ..                                             the body as it was
//!  }
//! ```
//!
//! A static in a function is one for all instances of a generic function, and one for each attribute. What a rule lets through
//! may hold something until the function returns, so the pass lives as long as the body; for other limits it is `()`.

use crate::body::{self, Manner};
use crate::options::{Allows, Asks, By, Kind, Options, Own, Rule, Store};
use crate::text::Piece;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Ident, Item, ItemFn, Result, ReturnType, Signature, Type, parse_quote_spanned};

/// The function with its limit, or as it was and the error.
pub(crate) fn expand(kind: Kind, options: TokenStream, item: TokenStream) -> TokenStream {
    limited(kind, options, item.clone()).unwrap_or_else(|error| {
        let error = error.into_compile_error();
        quote!(#item #error)
    })
}

fn limited(kind: Kind, options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let mut function = function(kind, item)?;
    let options = Options::read(kind, options)?;
    let (manner, body) = body::of(&function.sig, &mut function.block);
    let question = question(&options, &function.sig, manner)?;
    body.stmts.insert(0, parse_quote_spanned!(Span::mixed_site()=> #question));
    Ok(function.into_token_stream())
}

/// The function that the attribute is on.
fn function(kind: Kind, item: TokenStream) -> Result<ItemFn> {
    let name = kind.name();
    let function: ItemFn = match syn::parse2(item.clone()) {
        Ok(function) => function,
        // A function with a mistake in it is told as such.
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

/// Where to point at in what is not a function.
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

/// How the function answers a call that is refused.
fn refusal(options: &Options, signature: &Signature, manner: Manner, limited: &Ident) -> Result<TokenStream> {
    const WRITE: &str = "so it can't say that a call is limited: return `Result<_, E>` with an `E: From<diana::Limited>`, or write \
                         `on_limit = path`, for a `fn(diana::Limited)` that makes what this function returns";
    if let Some(path) = &options.on_limit {
        return Ok(quote_spanned!(path.span()=> #path(#limited)));
    }
    let name = &signature.ident;
    let says = |span| quote_spanned!(span=> ::diana::limited::SaysLimited::limited(#limited));
    match &signature.output {
        // What a future brings, the compiler knows.
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
            // The compiler knows what hides behind a name, and the trait tells it what to say.
            _ => Ok(says(returned.span())),
        },
    }
}

/// What is put before the body.
fn question(options: &Options, signature: &Signature, manner: Manner) -> Result<TokenStream> {
    // Names of our own, which no argument is hidden by: a function may well have one that is called `key`.
    let (pass, limited) = (Ident::new("_pass", Span::mixed_site()), Ident::new("limited", Span::mixed_site()));
    let refusal = refusal(options, signature, manner, &limited)?;
    let instance = match &options.instance {
        Some(name) => quote!(::core::option::Option::Some(#name)),
        None => quote!(::core::option::Option::None),
    };
    let Asking { site, before, ask } = match &options.asks {
        Asks::Own(own) => ask_own(own, &instance, signature, manner),
        Asks::Rule(rule) => ask_rule(rule, &instance, signature, manner),
    };
    Ok(quote! {
        #[allow(unused_mut, unused_parens, clippy::all, clippy::pedantic, clippy::nursery)]
        let #pass = {
            #site
            #before
            match #ask {
                ::core::result::Result::Ok(pass) => pass,
                ::core::result::Result::Err(#limited) => return #refusal,
            }
        };
    })
}

/// A question, in its parts.
struct Asking {
    /// The static of the attribute.
    site: TokenStream,
    /// What is written down about the call.
    before: TokenStream,
    /// The question itself.
    ask: TokenStream,
}

/// Asks a limit of the function's own.
fn ask_own(own: &Own, instance: &TokenStream, signature: &Signature, manner: Manner) -> Asking {
    let (site, key) = (quote!(::diana::limited::site), Ident::new("key", Span::mixed_site()));
    let says = says(own, instance, signature);
    let kind = match own.store {
        Store::Local => quote!(Site),
        Store::Shared => quote!(SharedSite),
    };
    let (before, ask) = match (own.store, own.timeout_nanos, manner) {
        (Store::Local, 0, _) => (TokenStream::new(), with_key(own, &key, &quote!(__DIANA_SITE.check(&#key)))),
        (_, _, Manner::Blocking) => (TokenStream::new(), with_key(own, &key, &quote!(__DIANA_SITE.wait(&#key)))),
        // What it borrows from must not be there while it waits: not all of that can go from thread to thread.
        (_, _, Manner::Async | Manner::Future) => {
            let owned = with_key(own, &key, &quote!(#key.into_owned()));
            (quote!(let #key = #owned;), quote!(__DIANA_SITE.wait_async(#key).await))
        }
    };
    Asking { site: quote!(static __DIANA_SITE: #site::#kind = #site::#kind::new(#says);), before, ask }
}

/// What `then` makes of the key.
fn with_key(own: &Own, key: &Ident, then: &TokenStream) -> TokenStream {
    let site = quote!(::diana::limited::site);
    // One thing alone is the key as it is. What it borrows from lives until the end of the `match`.
    if let (By::Function, [Piece::Differs(expression)]) = (&own.by, &*own.key) {
        let part = quote_spanned!(expression.span()=> #site::part(&(#expression)));
        return quote! {
            match #part {
                part => {
                    use #site::{OfAnything as _, OfPlain as _, OfShown as _};
                    let mut #key = #site::Key::new();
                    (&&&part).write(&mut #key);
                    #then
                }
            }
        };
    }
    let begins = match own.by {
        By::Function => quote!(new),
        By::Ip => quote!(by_ip),
        By::User => quote!(by_user),
    };
    let parts = write(&own.key, key);
    quote!({ let mut #key = #site::Key::#begins(); #parts #then })
}

/// Asks a rule.
fn ask_rule(rule: &Rule, instance: &TokenStream, signature: &Signature, manner: Manner) -> Asking {
    let (site, told) = (quote!(::diana::limited::site), Ident::new("told", Span::mixed_site()));
    let (name, function) = (&rule.name, signature.ident.to_string());
    let tells = rule.tells.iter().map(|(name, pieces)| {
        let parts = write(pieces, &told);
        quote!(#told.name(#name); #parts)
    });
    let path = quote!(::core::concat!(::core::module_path!(), "::", #function));
    Asking {
        site: quote!(static __DIANA_SITE: #site::RuleSite = #site::RuleSite::new(#path, #instance, #name);),
        before: quote!(let mut #told = #site::Told::new(); #(#tells)*),
        ask: match manner {
            Manner::Blocking => quote!(__DIANA_SITE.wait(&#told)),
            Manner::Async | Manner::Future => quote!(__DIANA_SITE.wait_async(#told).await),
        },
    }
}

/// Writes a text down.
fn write(pieces: &[Piece], to: &Ident) -> TokenStream {
    let parts = pieces.iter().map(|piece| match piece {
        Piece::Same(text) => quote!(#to.text(#text);),
        Piece::Differs(expression) => quote_spanned!(expression.span()=> #to.part(&(#expression));),
    });
    quote!(#(#parts)*)
}

/// What the attribute says, as a `Says`.
fn says(own: &Own, instance: &TokenStream, signature: &Signature) -> TokenStream {
    let site = quote!(::diana::limited::site);
    let (prefix, function) = (&own.prefix, signature.ident.to_string());
    let (length, timeout) = (prefix.len(), own.timeout_nanos);
    let by = match own.by {
        By::Function => quote!(Function),
        By::Ip => quote!(Ip),
        By::User => quote!(User),
    };
    let one_key = matches!(own.by, By::Function) && !own.key.iter().any(|piece| matches!(piece, Piece::Differs(_)));
    let keys = if one_key { quote!(One) } else { quote!(Many) };
    let allows = match own.allows {
        Allows::Rate { rate, burst_nanos } => {
            quote!(Rate { rate: #rate, burst: ::core::time::Duration::from_nanos(#burst_nanos) })
        }
        Allows::Count { limit, period_nanos } => {
            quote!(Count { limit: #limit, period: ::core::time::Duration::from_nanos(#period_nanos) })
        }
    };
    quote! {
        #site::Says {
            name: ::core::concat!(#prefix, ::core::module_path!(), "::", #function),
            prefix: #length,
            instance: #instance,
            by: #site::By::#by,
            keys: #site::Keys::#keys,
            limit: #site::Allows::#allows,
            timeout: ::core::time::Duration::from_nanos(#timeout),
        }
    }
}
