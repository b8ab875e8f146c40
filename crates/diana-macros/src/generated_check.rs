//! The check before a function's body.
//!
//! A call granted by a rule may hold permits until the function returns, so the guard of `#[limited]` lives as long as
//! the body.

use crate::argument_names::Arguments;
use crate::body_kind::BodyKind;
use crate::options::{By, Limit, LimitSpec, Options, Rule, Store, Target};
use crate::template::Piece;
use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Expr, Ident, Result, Signature};

/// The check before the body.
pub(crate) struct Check<'a> {
    options: &'a Options,
    function: String,
    body_kind: BodyKind,
    /// The path of the module with all the items that the generated code uses.
    callsite: TokenStream,
}

impl<'a> Check<'a> {
    /// Creates the check of a function, if all its expressions use known arguments.
    pub(crate) fn new(options: &'a Options, signature: &Signature, body_kind: BodyKind) -> Result<Self> {
        let arguments = Arguments::of(signature);
        for piece in options.target.pieces() {
            if let Piece::Expr(expression) = piece {
                arguments.check(expression, &signature.ident)?;
            }
        }
        let root = &options.root;
        Ok(Self {
            options,
            function: signature.ident.to_string(),
            body_kind,
            callsite: quote!(#root::limited::callsite),
        })
    }

    /// Generates the check; a denied call binds the error to `limited` and returns `denial`.
    pub(crate) fn write(&self, limited: &Ident, denial: &TokenStream) -> TokenStream {
        let instance = match &self.options.instance {
            Some(name) => quote!(::core::option::Option::Some(#name)),
            None => quote!(::core::option::Option::None),
        };
        match &self.options.target {
            Target::Limit(limit) => {
                let (setup, check) = self.limit(limit, &instance);
                quote! {
                    #[allow(clippy::all, clippy::pedantic, clippy::nursery)]
                    {
                        #setup
                        if let ::core::result::Result::Err(#limited) = #check {
                            return #denial;
                        }
                    }
                }
            }
            Target::Rule(rule) => {
                let (setup, check) = self.rule(rule, &instance);
                let guard = hygienic("guard");
                quote! {
                    #[allow(clippy::all, clippy::pedantic, clippy::nursery)]
                    let #guard = {
                        #setup
                        match #check {
                            ::core::result::Result::Ok(#guard) => #guard,
                            ::core::result::Result::Err(#limited) => return #denial,
                        }
                    };
                }
            }
        }
    }

    /// Generates the static, and the check of a limit in the attribute.
    fn limit(&self, limit: &Limit, instance: &TokenStream) -> (TokenStream, TokenStream) {
        let (callsite, key, spec) = (&self.callsite, hygienic("key"), self.spec(limit, instance));
        let kind = match limit.store {
            Store::Local => quote!(LocalCallSite),
            Store::Shared => quote!(SharedCallSite),
        };
        let item = quote!(static __DIANA_CALL_SITE: #callsite::#kind = #callsite::#kind::new(#spec););
        match (limit.store, limit.timeout_nanos, self.body_kind) {
            (Store::Local, 0, _) => (item, self.with_key(limit, &key, &quote!(__DIANA_CALL_SITE.check(&#key)))),
            (_, _, BodyKind::Blocking) => (item, self.with_key(limit, &key, &quote!(__DIANA_CALL_SITE.wait(&#key)))),
            // Borrowed arguments must not be alive across the wait, since not all of them are `Send`.
            (_, _, BodyKind::Async | BodyKind::Future) => {
                let owned = self.with_key(limit, &key, &quote!(#key.into_owned()));
                (quote!(#item let #key = #owned;), quote!(__DIANA_CALL_SITE.wait_async(#key).await))
            }
        }
    }

    /// Generates `then` with the key.
    fn with_key(&self, limit: &Limit, key: &Ident, then: &TokenStream) -> TokenStream {
        let callsite = &self.callsite;
        // A single value is used as the key directly. Its borrow lives until the end of the `match`.
        if let (By::Function, [Piece::Expr(expression)]) = (&limit.by, &*limit.key) {
            let (value, part) = (borrowed(expression), hygienic("part"));
            let whole = quote_spanned!(expression.span()=> #callsite::part(#value));
            return quote! {
                match #whole {
                    #part => {
                        use #callsite::{WriteDisplay as _, WriteNothing as _, WritePlain as _};
                        let mut #key = #callsite::CallKey::new();
                        (&&&#part).write(&mut #key);
                        #then
                    }
                }
            };
        }
        let constructor = match limit.by {
            By::Function => quote!(new),
            By::Ip => quote!(by_ip),
            By::User => quote!(by_user),
        };
        if limit.key.is_empty() {
            return quote!({ let #key = #callsite::CallKey::#constructor(); #then });
        }
        let parts = write_pieces(&limit.key, key);
        quote!({ let mut #key = #callsite::CallKey::#constructor(); #parts #then })
    }

    /// Generates the static, and the check of a rule.
    fn rule(&self, rule: &Rule, instance: &TokenStream) -> (TokenStream, TokenStream) {
        let (callsite, args) = (&self.callsite, hygienic("args"));
        let (name, function) = (&rule.name, &self.function);
        let path = quote!(::core::concat!(::core::module_path!(), "::", #function));
        let item = quote! {
            static __DIANA_CALL_SITE: #callsite::RuleCallSite = #callsite::RuleCallSite::new(#path, #instance, #name);
        };
        let writes = rule.args.iter().map(|(name, pieces)| {
            let parts = write_pieces(pieces, &args);
            quote!(#args.name(#name); #parts)
        });
        let value = match rule.args.is_empty() {
            true => quote!(#callsite::Args::new()),
            false => quote!({ let mut #args = #callsite::Args::new(); #(#writes)* #args }),
        };
        let check = match self.body_kind {
            BodyKind::Blocking => quote!(__DIANA_CALL_SITE.wait(&#args)),
            BodyKind::Async | BodyKind::Future => quote!(__DIANA_CALL_SITE.wait_async(#args).await),
        };
        (quote!(#item let #args = #value;), check)
    }

    /// Generates the options as `AttributeOptions`.
    fn spec(&self, limit: &Limit, instance: &TokenStream) -> TokenStream {
        let (callsite, prefix, function) = (&self.callsite, &limit.prefix, &self.function);
        let (length, timeout) = (prefix.len(), limit.timeout_nanos);
        let expire = match limit.expire_nanos {
            Some(nanos) => quote!(::core::option::Option::Some(::core::time::Duration::from_nanos(#nanos))),
            None => quote!(::core::option::Option::None),
        };
        let by = match limit.by {
            By::Function => quote!(Function),
            By::Ip => quote!(Ip),
            By::User => quote!(User),
        };
        let one_key =
            matches!(limit.by, By::Function) && !limit.key.iter().any(|piece| matches!(piece, Piece::Expr(_)));
        let keys = if one_key { quote!(One) } else { quote!(Many) };
        let limit_spec = match limit.spec {
            LimitSpec::Rate { permits, period_nanos, capacity, cost } => {
                let period = quote!(::core::time::Duration::from_nanos(#period_nanos));
                quote!(Rate { permits: #permits, period: #period, capacity: #capacity, cost: #cost })
            }
            LimitSpec::Smooth { rate, saved_nanos } => {
                quote!(Smooth { rate: #rate, saved: ::core::time::Duration::from_nanos(#saved_nanos) })
            }
            LimitSpec::Count { limit, period_nanos } => {
                quote!(Count { limit: #limit, period: ::core::time::Duration::from_nanos(#period_nanos) })
            }
        };
        quote! {
            #callsite::AttributeOptions {
                name: ::core::concat!(#prefix, ::core::module_path!(), "::", #function),
                prefix: #length,
                instance: #instance,
                by: #callsite::By::#by,
                keys: #callsite::Keys::#keys,
                limit: #callsite::LimitSpec::#limit_spec,
                timeout: ::core::time::Duration::from_nanos(#timeout),
                expire: #expire,
            }
        }
    }
}

/// Returns a hygienic name: a function may have an argument `key`, and a module a constant `part`.
fn hygienic(name: &str) -> Ident {
    Ident::new(&format!("__diana_{name}"), Span::mixed_site())
}

/// Generates the code that writes a text.
fn write_pieces(pieces: &[Piece], to: &Ident) -> TokenStream {
    let parts = pieces.iter().map(|piece| match piece {
        Piece::Literal(text) => quote!(#to.text(#text);),
        Piece::Expr(expression) => {
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
