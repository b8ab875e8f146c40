//! gRPC's health checks: of the whole program, and of each service by its name.

use futures_util::{Stream, StreamExt, stream};
use std::pin::Pin;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_server::Health;
use tonic_health::pb::{HealthCheckRequest, HealthCheckResponse};

/// The names that clients can ask for; the empty one is that of the whole program.
const NAMES: [&str; 3] = ["", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.auth.v3.Authorization"];

/// The health of the services: serving, until they stop.
pub(super) struct HealthService {
    stop: watch::Receiver<bool>,
}

impl HealthService {
    pub(super) fn new(stop: watch::Receiver<bool>) -> Self {
        Self { stop }
    }

    fn status(&self) -> ServingStatus {
        if *self.stop.borrow() { ServingStatus::NotServing } else { ServingStatus::Serving }
    }
}

fn response(status: ServingStatus) -> HealthCheckResponse {
    HealthCheckResponse { status: status.into() }
}

#[tonic::async_trait]
impl Health for HealthService {
    async fn check(&self, request: Request<HealthCheckRequest>) -> Result<Response<HealthCheckResponse>, Status> {
        if !NAMES.contains(&&*request.get_ref().service) {
            return Err(Status::not_found("unknown service"));
        }
        Ok(Response::new(response(self.status())))
    }

    type WatchStream = Pin<Box<dyn Stream<Item = Result<HealthCheckResponse, Status>> + Send>>;

    /// Ends when the services stop, so that it does not delay them.
    async fn watch(&self, request: Request<HealthCheckRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (now, stopped) = match NAMES.contains(&&*request.get_ref().service) {
            true => (self.status(), ServingStatus::NotServing),
            false => (ServingStatus::ServiceUnknown, ServingStatus::ServiceUnknown),
        };
        let mut stop = self.stop.clone();
        let last = stream::once(async move {
            let _ = stop.wait_for(|stop| *stop).await;
            Ok(response(stopped))
        });
        Ok(Response::new(stream::once(async move { Ok(response(now)) }).chain(last).boxed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(service: &str) -> Request<HealthCheckRequest> {
        Request::new(HealthCheckRequest { service: service.to_owned() })
    }

    #[tokio::test]
    async fn services_are_not_serving_while_they_stop() {
        let (send, stop) = watch::channel(false);
        let health = HealthService::new(stop);
        let status = async |name: &str| health.check(asked(name)).await.unwrap().into_inner().status();
        for name in NAMES {
            assert_eq!(status(name).await, ServingStatus::Serving, "{name}");
        }
        let mut watched = health.watch(asked("")).await.unwrap().into_inner();
        assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::Serving);
        send.send(true).unwrap();
        for name in NAMES {
            assert_eq!(status(name).await, ServingStatus::NotServing, "{name}");
        }
        assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::NotServing);
        assert!(watched.next().await.is_none());
    }

    #[tokio::test]
    async fn an_unknown_service_is_not_found() {
        let (_send, stop) = watch::channel(false);
        let health = HealthService::new(stop);
        assert_eq!(health.check(asked("other")).await.unwrap_err().code(), tonic::Code::NotFound);
        let mut watched = health.watch(asked("other")).await.unwrap().into_inner();
        assert_eq!(watched.next().await.unwrap().unwrap().status(), ServingStatus::ServiceUnknown);
    }
}
