//! The page (placeholder while it is being written).
use axum::body::Body;
use http::Response;
pub(crate) fn serve(_path: &str, _known: Option<&str>) -> Response<Body> {
    Response::new(Body::from("page"))
}
