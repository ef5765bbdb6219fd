package tracing

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	apiserverv1 "k8s.io/apiserver/pkg/apis/apiserver/v1"
	"k8s.io/component-base/tracing"
	tracingv1 "k8s.io/component-base/tracing/api/v1"
	"sigs.k8s.io/yaml"

	"github.com/globalreserve/globalreserve/pkg/version"
)

// kind is what the file has: the one that kube-apiserver reads.
const kind = "TracingConfiguration"

// read returns what a file says, or what is wrong with it.
func read(file string) (*tracingv1.TracingConfiguration, error) {
	content, err := os.ReadFile(file) //nolint:gosec // whoever starts the server names it
	if err != nil {
		return nil, err
	}
	var config apiserverv1.TracingConfiguration
	if err := yaml.UnmarshalStrict(content, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if config.Kind != kind || config.APIVersion != apiserverv1.SchemeGroupVersion.String() {
		return nil, fmt.Errorf("%s: got apiVersion %q, kind %q; give %q, %q", file, config.APIVersion, config.Kind,
			apiserverv1.SchemeGroupVersion, kind)
	}
	if errs := tracingv1.ValidateTracingConfiguration(&config.TracingConfiguration, nil, nil); len(errs) > 0 {
		return nil, fmt.Errorf("%s: %w", file, errs.ToAggregate())
	}
	if config.SamplingRatePerMillion == nil || *config.SamplingRatePerMillion == 0 {
		return nil, fmt.Errorf("%s: %w", file,
			errors.New(
				"samplingRatePerMillion is 0: nothing would be traced; give how many of a million pods are, such as 10000",
			))
	}
	return &config.TracingConfiguration, nil
}

// Open returns a Tracer as a file says, the zero one where file is "". It connects in the background: a collector that
// cannot be reached is logged, and spans are dropped. Shutdown ends it.
func Open(ctx context.Context, file string, log logrus.FieldLogger) (Tracer, error) {
	if file == "" {
		return Tracer{}, nil
	}
	config, err := read(file)
	if err != nil {
		return Tracer{}, fmt.Errorf("--tracing-config-file: %w", err)
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.WithError(err).
			Warn("traces go on without what is wrong in OTEL_RESOURCE_ATTRIBUTES, or in another variable of OpenTelemetry")
	}))
	environment, _ := resource.New(ctx, resource.WithFromEnv()) // what is right in it; the provider reports what is not
	provider, err := tracing.NewProvider(ctx, config, nil, []resource.Option{
		resource.WithAttributes(
			attribute.String("service.name", "globalreserve"), attribute.String("service.version", version.Get().GitVersion)),
		resource.WithHost(), // distinguishes the servers of a cluster: in a pod it is the pod's name
		resource.WithAttributes(environment.Attributes()...),
	})
	if err != nil {
		return Tracer{}, fmt.Errorf("--tracing-config-file %s: %w", file, err)
	}
	otel.SetErrorHandler(&failures{log: log})
	return newTracer(provider), nil
}

// quiet is for how long failures to send are only counted after one was logged. A collector that is gone fails every
// few seconds.
const quiet = time.Minute

// failures logs that spans cannot be sent.
type failures struct {
	log logrus.FieldLogger

	mu      sync.Mutex // guards what follows
	logged  time.Time
	leftOut int // since
}

// Handle implements otel.ErrorHandler.
func (f *failures) Handle(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.logged) >= quiet {
		f.log.WithError(err).WithField("leftOut", f.leftOut).Warn("spans cannot be sent")
		f.logged, f.leftOut = now, 0
		return
	}
	f.leftOut++
}
