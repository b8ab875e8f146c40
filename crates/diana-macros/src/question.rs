//! The check before a function's body.
//!
//! A call granted by a rule may hold permits until the function returns, so the guard of `#[limited]` lives as long as
//! the body.

use crate::arguments::Arguments;
use crate::body::Manner;
use crate::options::{Allows, Asks, By, Options, Own, Rule, Store};
use crate::text::Piece;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Result, Signature};

/// The check that a call makes first.
pub(crate) struct Question<'a> {
    options: &'a Options,
    function: String,
    manner: Manner,
    /// The path of the module with all the items that the generated code uses.
    site: TokenStream,
}

impl<'a> Question<'a> {
    /// Creates the check of a function, if all its expressions use known arguments.
    pub(crate) fn new(options: &'a Options, signature: &Signature, manner: Manner) -> Result<Self> {
        let arguments = Arguments::of(signature);
        for piece in options.asks.pieces() {
            if let Piece::Differs(expression) = piece {
                arguments.check(expression, &signature.ident)?;
            }
        }
        let root = &options.root;
        Ok(Self { options, function: signature.ident.to_string(), manner, site: quote!(#root::limited::callsite) })
    }

    /// Generates the check; a denied call binds the error to `limited` and returns `refusal`.
    pub(crate) fn write(&self, limited: &Ident, refusal: &TokenStream) -> TokenStream {
        let instance = match &self.options.instance {
            Some(name) => quote!(::core::option::Option::Some(#name)),
            None => quote!(::core::option::Option::None),
        };
        match &self.options.asks {
            Asks::Own(own) => {
                let (site, ask) = self.own(own, &instance);
                quote! {
                    #[allow(clippy::all, clippy::pedantic, clippy::nursery)]
                    {
                        #site
                        if let ::core::result::Result::Err(#limited) = #ask {
                            return #refusal;
                        }
                    }
                }
            }
            Asks::Rule(rule) => {
                let (site, ask) = self.rule(rule, &instance);
                let pass = own_name("pass");
                quote! {
                    #[allow(clippy::all, clippy::pedantic, clippy::nursery)]
                    let #pass = {
                        #site
                        match #ask {
                            ::core::result::Result::Ok(#pass) => #pass,
                            ::core::result::Result::Err(#limited) => return #refusal,
                        }
                    };
                }
            }
        }
    }

    /// Generates the static, and the check of a limit in the attribute.
    fn own(&self, own: &Own, instance: &TokenStream) -> (TokenStream, TokenStream) {
        let (site, key, says) = (&self.site, own_name("key"), self.says(own, instance));
        let kind = match own.store {
            Store::Local => quote!(LocalSite),
            Store::Shared => quote!(SharedSite),
        };
        let once = quote!(static __DIANA_SITE: #site::#kind = #site::#kind::new(#says););
        match (own.store, own.timeout_nanos, self.manner) {
            (Store::Local, 0, _) => (once, self.with_key(own, &key, &quote!(__DIANA_SITE.check(&#key)))),
            (_, _, Manner::Blocking) => (once, self.with_key(own, &key, &quote!(__DIANA_SITE.wait(&#key)))),
            // Borrowed arguments must not be alive across the wait, since not all of them are `Send`.
            (_, _, Manner::Async | Manner::Future) => {
                let owned = self.with_key(own, &key, &quote!(#key.into_owned()));
                (quote!(#once let #key = #owned;), quote!(__DIANA_SITE.wait_async(#key).await))
            }
        }
    }

    /// Generates `then` with the key.
    fn with_key(&self, own: &Own, key: &Ident, then: &TokenStream) -> TokenStream {
        let site = &self.site;
        // A single value is used as the key directly. Its borrow lives until the end of the `match`.
        if let (By::Function, [Piece::Differs(expression)]) = (&own.by, &*own.key) {
            let (value, part) = (borrowed(expression), own_name("part"));
            let whole = quote_spanned!(expression.span()=> #site::part(#value));
            return quote! {
                match #whole {
                    #part => {
                        use #site::{OfAnything as _, OfPlain as _, OfShown as _};
                        let mut #key = #site::Key::new();
                        (&&&#part).write(&mut #key);
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
        if own.key.is_empty() {
            return quote!({ let #key = #site::Key::#begins(); #then });
        }
        let parts = written(&own.key, key);
        quote!({ let mut #key = #site::Key::#begins(); #parts #then })
    }

    /// Generates the static, and the check of a rule.
    fn rule(&self, rule: &Rule, instance: &TokenStream) -> (TokenStream, TokenStream) {
        let (site, told) = (&self.site, own_name("told"));
        let (name, function) = (&rule.name, &self.function);
        let path = quote!(::core::concat!(::core::module_path!(), "::", #function));
        let once = quote!(static __DIANA_SITE: #site::RuleSite = #site::RuleSite::new(#path, #instance, #name););
        let tells = rule.tells.iter().map(|(name, pieces)| {
            let parts = written(pieces, &told);
            quote!(#told.name(#name); #parts)
        });
        let made = match rule.tells.is_empty() {
            true => quote!(#site::Args::new()),
            false => quote!({ let mut #told = #site::Args::new(); #(#tells)* #told }),
        };
        let ask = match self.manner {
            Manner::Blocking => quote!(__DIANA_SITE.wait(&#told)),
            Manner::Async | Manner::Future => quote!(__DIANA_SITE.wait_async(#told).await),
        };
        (quote!(#once let #told = #made;), ask)
    }

    /// Generates the options as a `Spec`.
    fn says(&self, own: &Own, instance: &TokenStream) -> TokenStream {
        let (site, prefix, function) = (&self.site, &own.prefix, &self.function);
        let (length, timeout) = (prefix.len(), own.timeout_nanos);
        let expire = match own.expire_nanos {
            Some(nanos) => quote!(::core::option::Option::Some(::core::time::Duration::from_nanos(#nanos))),
            None => quote!(::core::option::Option::None),
        };
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
            #site::Spec {
                name: ::core::concat!(#prefix, ::core::module_path!(), "::", #function),
                prefix: #length,
                instance: #instance,
                by: #site::By::#by,
                keys: #site::Keys::#keys,
                limit: #site::Allows::#allows,
                timeout: ::core::time::Duration::from_nanos(#timeout),
                expire: #expire,
            }
        }
    }
}

/// Returns a hygienic name: a function may have an argument `key`, and a module a constant `part`.
fn own_name(name: &str) -> Ident {
    Ident::new(&format!("__diana_{name}"), Span::mixed_site())
}

/// Generates the code that writes a text.
fn written(pieces: &[Piece], to: &Ident) -> TokenStream {
    let parts = pieces.iter().map(|piece| match piece {
        Piece::Same(text) => quote!(#to.text(#text);),
        Piece::Differs(expression) => {
            let value = borrowed(expression);
            quote_spanned!(expression.span()=> #to.part(#value);)
        }
    });
    quote!(#(#parts)*)
}

/// Returns a borrow of an expression; in parentheses only if needed, since the compiler warns about others.
fn borrowed(expression: &Expr) -> TokenStream {
    match expression {
        Expr::Call(_)
        | Expr::Field(_)
        | Expr::Index(_)
        | Expr::Lit(_)
        | Expr::Macro(_)
        | Expr::MethodCall(_)
        | Expr::Paren(_)
        | Expr::Path(_) => quote_spanned!(expression.span()=> &#expression),
        _ => quote_spanned!(expression.span()=> &(#expression)),
    }
}
