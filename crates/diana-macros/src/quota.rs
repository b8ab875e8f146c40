//! `quota!("100/s burst 200")`: a quota whose text the compiler checks.

use diana_core::Quota;
use proc_macro2::TokenStream;
use quote::quote;
use syn::{Error, LitStr, Result};

/// Returns a constant expression for the quota, or an error at its text.
pub(crate) fn expand(text: TokenStream) -> TokenStream {
    constant(text).unwrap_or_else(|error| error.to_compile_error())
}

fn constant(text: TokenStream) -> Result<TokenStream> {
    let expected =
        |error: Error| Error::new(error.span(), "expected a quota in quotes, such as `quota!(\"100/s burst 200\")`");
    let text = syn::parse2::<LitStr>(text).map_err(expected)?;
    let quota = text.value().parse::<Quota>().map_err(|error| Error::new(text.span(), error.to_string()))?;
    let (permits, period, burst) = (quota.permits(), quota.period(), quota.burst());
    let (seconds, nanos) = (period.as_secs(), period.subsec_nanos());
    Ok(quote! {
        const { ::diana::Quota::checked(#permits, ::core::time::Duration::new(#seconds, #nanos), #burst) }
    })
}
