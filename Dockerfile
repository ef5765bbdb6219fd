# The server as one static binary in an empty image, run as a user without rights.
#
#   docker build --build-arg VERSION=v0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) -t globalreserve:v0.1.0 .
#
# `make image` does the same with the version of the work tree.

ARG GO_VERSION=1.26

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
ENV CGO_ENABLED=0

# The modules change less often than the code: a layer of their own keeps them cached.
COPY go.mod go.sum ./
COPY pkg/client/go.mod pkg/client/go.sum pkg/client/
COPY pkg/reserver/go.mod pkg/reserver/go.sum pkg/reserver/
RUN go mod download

COPY cmd cmd
COPY pkg pkg

# Set by the builder; a default here would override them.
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=v0.0.0-unknown
ARG COMMIT=unknown
ARG BUILD_DATE=unknown
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false -tags grpcnotrace \
    -ldflags "-s -w \
      -X github.com/globalreserve/globalreserve/pkg/version.gitVersion=${VERSION} \
      -X github.com/globalreserve/globalreserve/pkg/version.gitCommit=${COMMIT} \
      -X github.com/globalreserve/globalreserve/pkg/version.buildDate=${BUILD_DATE}" \
    -o /out/globalreserve ./cmd/globalreserve

# kube-scheduler with the plugin, a module of its own:
#   docker build --target scheduler -t globalreserve-scheduler:v0.1.0 .
FROM build AS build-scheduler
WORKDIR /src/cmd/globalreserve-scheduler
RUN go mod download
RUN kubernetes=$(go list -m -f '{{.Version}}' k8s.io/kubernetes) && \
    GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
    -ldflags "-s -w \
      -X github.com/globalreserve/globalreserve/pkg/version.gitVersion=${VERSION} \
      -X github.com/globalreserve/globalreserve/pkg/version.gitCommit=${COMMIT} \
      -X github.com/globalreserve/globalreserve/pkg/version.buildDate=${BUILD_DATE} \
      -X k8s.io/component-base/version.gitVersion=${kubernetes} \
      -X k8s.io/client-go/pkg/version.gitVersion=${kubernetes}" \
    -o /out/globalreserve-scheduler .

FROM scratch AS scheduler
COPY --from=build-scheduler /out/globalreserve-scheduler /globalreserve-scheduler
USER 65532:65532
EXPOSE 10259 23456
ENTRYPOINT ["/globalreserve-scheduler"]

# Nothing but the binary: in a cluster the API server's CA comes with the service account.
FROM scratch
COPY --from=build /out/globalreserve /globalreserve
USER 65532:65532
EXPOSE 23456
ENTRYPOINT ["/globalreserve"]
