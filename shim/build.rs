//! Sets the `Py_3_x` cfgs that the layout modules select on.
fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
