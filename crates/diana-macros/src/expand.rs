//! What a limited function becomes: itself, with a question before its first statement.
//!
//! ```text
//!  async fn search(user: &User) -> Result<Page, Error> {
//!      {
//!          static SITE: Site = ..;                    what the attribute says
//!          let mut key = Key::new();                  whose call it is
//!          key.part(&(user.id));
//!          if let Err(limited) = SITE.check(&key) {   or `wait`, or `wait_async(..).await`
//!              return SaysLimited::limited(limited);  or `on_limit(limited)`
//!          }
//!      }
//!      ..                                             the body as it was
//!  }
//! ```
//!
//! A static in a function is one for all instances of a generic function, and one for each attribute.

use crate::options::{Allows, By, Kind, Options};
use crate::text::Piece;
use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Error, Expr, Ident, Item, ItemFn, Result, ReturnType, Signature, Stmt, Type};

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
    let question = question(&options, &function.sig)?;
    function.block.stmts.insert(0, Stmt::Expr(Expr::Verbatim(question), None));
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
fn refusal(options: &Options, signature: &Signature, limited: &Ident) -> Result<TokenStream> {
    const WRITE: &str = "so it can't say that a call is limited: return `Result<_, E>` with an `E: From<diana::Limited>`, or write \
                         `on_limit = path`, for a `fn(diana::Limited)` that makes what this function returns";
    if let Some(path) = &options.on_limit {
        return Ok(quote_spanned!(path.span()=> #path(#limited)));
    }
    let name = &signature.ident;
    match &signature.output {
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
            _ => Ok(quote_spanned!(returned.span()=> ::diana::limited::SaysLimited::limited(#limited))),
        },
    }
}

/// What is put before the body.
fn question(options: &Options, signature: &Signature) -> Result<TokenStream> {
    // Names of our own, which no argument is hidden by: a function may well have one that is called `key`.
    let (key, limited) = (Ident::new("key", Span::mixed_site()), Ident::new("limited", Span::mixed_site()));
    let refusal = refusal(options, signature, &limited)?;
    let says = says(options, signature);
    let site = quote!(::diana::limited::site);
    let begins = match options.by {
        By::Function => quote!(new),
        By::Ip => quote!(by_ip),
        By::User => quote!(by_user),
    };
    let parts = options.key.iter().map(|piece| match piece {
        Piece::Same(text) => quote!(#key.text(#text);),
        Piece::Differs(expression) => quote_spanned!(expression.span()=> #key.part(&(#expression));),
    });
    let ask = match (options.timeout_nanos, signature.asyncness) {
        (0, _) => quote!(__DIANA_SITE.check(&#key)),
        (_, None) => quote!(__DIANA_SITE.wait(&#key)),
        (_, Some(_)) => quote!(__DIANA_SITE.wait_async(#key).await),
    };
    Ok(quote! {
        #[allow(unused_mut, unused_parens, clippy::all, clippy::pedantic, clippy::nursery)]
        {
            static __DIANA_SITE: #site::Site = #site::Site::new(#says);
            let mut #key = #site::Key::#begins();
            #(#parts)*
            if let ::core::result::Result::Err(#limited) = #ask {
                return #refusal;
            }
        }
    })
}

/// What the attribute says, as a `Says`.
fn says(options: &Options, signature: &Signature) -> TokenStream {
    let site = quote!(::diana::limited::site);
    let (prefix, function) = (&options.prefix, signature.ident.to_string());
    let (length, timeout) = (prefix.len(), options.timeout_nanos);
    let instance = match &options.instance {
        Some(name) => quote!(::core::option::Option::Some(#name)),
        None => quote!(::core::option::Option::None),
    };
    let by = match options.by {
        By::Function => quote!(Function),
        By::Ip => quote!(Ip),
        By::User => quote!(User),
    };
    let one_key =
        matches!(options.by, By::Function) && !options.key.iter().any(|piece| matches!(piece, Piece::Differs(_)));
    let keys = if one_key { quote!(One) } else { quote!(Many) };
    let allows = match options.allows {
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
