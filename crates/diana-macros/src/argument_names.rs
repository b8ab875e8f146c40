//! The names of a function's arguments, so that an unknown name is reported as such.
//!
//! The compiler would report it, too. But it would suggest to replace the whole text by the nearest name, and
//! `by = user` is something else than `by = "{user}"`.

use syn::{Error, Expr, FnArg, Pat, Result, Signature};

/// The names that a function's arguments bind.
pub(crate) struct Arguments(Vec<String>);

impl Arguments {
    pub(crate) fn of(signature: &Signature) -> Self {
        let mut names = Vec::new();
        for argument in &signature.inputs {
            match argument {
                FnArg::Receiver(_) => names.push("self".to_owned()),
                FnArg::Typed(argument) => bound(&argument.pat, &mut names),
            }
        }
        Self(names)
    }

    /// Checks that an expression starts with an argument. Expressions that do not start with a name, or start with a
    /// constant, are accepted.
    pub(crate) fn check(&self, expression: &Expr, function: &syn::Ident) -> Result<()> {
        let Some(head) = head(expression) else { return Ok(()) };
        let name = head.to_string();
        if name.starts_with(char::is_uppercase) || self.0.contains(&name) {
            return Ok(());
        }
        let known = match &*self.0 {
            [] => "no arguments".to_owned(),
            names => format!("`{}`", names.join("`, `")),
        };
        Err(Error::new(head.span(), format!("unknown argument `{name}`; `{function}` has {known}")))
    }
}

fn bound(pattern: &Pat, names: &mut Vec<String>) {
    match pattern {
        Pat::Ident(binding) => {
            names.push(binding.ident.to_string());
            if let Some((_, inner)) = &binding.subpat {
                bound(inner, names);
            }
        }
        Pat::Or(or) => or.cases.iter().for_each(|case| bound(case, names)),
        Pat::Paren(inner) => bound(&inner.pat, names),
        Pat::Reference(inner) => bound(&inner.pat, names),
        Pat::Slice(slice) => slice.elems.iter().for_each(|inner| bound(inner, names)),
        Pat::Struct(fields) => fields.fields.iter().for_each(|field| bound(&field.pat, names)),
        Pat::Tuple(tuple) => tuple.elems.iter().for_each(|inner| bound(inner, names)),
        Pat::TupleStruct(tuple) => tuple.elems.iter().for_each(|inner| bound(inner, names)),
        Pat::Type(inner) => bound(&inner.pat, names),
        _ => {}
    }
}

/// Returns the variable whose fields and methods are used.
fn head(expression: &Expr) -> Option<&syn::Ident> {
    match expression {
        Expr::Field(field) => head(&field.base),
        Expr::MethodCall(call) => head(&call.receiver),
        Expr::Index(index) => head(&index.expr),
        Expr::Paren(inner) => head(&inner.expr),
        Expr::Reference(inner) => head(&inner.expr),
        Expr::Unary(inner) => head(&inner.expr),
        Expr::Path(path) if path.qself.is_none() => path.path.get_ident(),
        _ => None,
    }
}
