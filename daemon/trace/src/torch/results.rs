//! Torch's named result tuples.

/// Field names of torch's structured results, in order.
const RETURN_TYPES: &[(&[&str], &[&str])] = &[
    (
        &["max", "min", "sort", "topk", "mode", "median", "nanmedian", "kthvalue", "cummax", "cummin"],
        &["values", "indices"],
    ),
    (&["linalg_qr"], &["Q", "R"]),
    (&["svd"], &["U", "S", "V"]),
    (&["linalg_svd"], &["U", "S", "Vh"]),
    (&["linalg_eigh", "linalg_eig"], &["eigenvalues", "eigenvectors"]),
    (&["slogdet", "linalg_slogdet"], &["sign", "logabsdet"]),
    (&["aminmax"], &["min", "max"]),
    (&["frexp"], &["mantissa", "exponent"]),
    (&["geqrf"], &["a", "tau"]),
    (&["histogram", "histogramdd"], &["hist", "bin_edges"]),
    (&["linalg_cholesky_ex"], &["L", "info"]),
    (&["linalg_inv_ex"], &["inverse", "info"]),
    (&["linalg_ldl_factor"], &["LD", "pivots"]),
    (&["linalg_ldl_factor_ex"], &["LD", "pivots", "info"]),
    (&["linalg_lstsq"], &["solution", "residuals", "rank", "singular_values"]),
    (&["linalg_lu", "lu_unpack"], &["P", "L", "U"]),
    (&["linalg_lu_factor"], &["LU", "pivots"]),
    (&["linalg_lu_factor_ex"], &["LU", "pivots", "info"]),
    (&["linalg_polar"], &["U", "H"]),
    (&["linalg_solve_ex"], &["result", "info"]),
    (&["triangular_solve"], &["solution", "cloned_coefficient"]),
];

/// Fields of torch's named result tuples, by the type's path.
pub(crate) fn result_fields(path: &str) -> Option<&'static [&'static str]> {
    let kind = path.strip_prefix("torch.return_types.")?.trim_end_matches("_out");
    RETURN_TYPES.iter().find(|(kinds, _)| kinds.contains(&kind)).map(|(_, fields)| *fields)
}
