package app

import (
	"fmt"
	"io"
	"slices"

	"github.com/bombsimon/logrusr/v4"
	"github.com/sirupsen/logrus"
	"k8s.io/klog/v2"
)

// timestampFormat has the milliseconds that are needed to order decisions.
const timestampFormat = "2006-01-02T15:04:05.000Z07:00"

// newLogger makes the server's logger. out may be nil for a logger that is only checked.
func newLogger(level, format string, out io.Writer) (*logrus.Logger, error) {
	log := logrus.New()
	log.SetOutput(out)
	switch format {
	case "text":
		log.SetFormatter(&logrus.TextFormatter{FullTimestamp: true, TimestampFormat: timestampFormat, DisableColors: true})
	case "json":
		log.SetFormatter(&logrus.JSONFormatter{TimestampFormat: timestampFormat})
	default:
		return nil, fmt.Errorf("--log-format %q is unknown; give text or json", format)
	}
	parsed, err := logrus.ParseLevel(level)
	if err != nil || !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
		return nil, fmt.Errorf("--log-level %q is unknown; give debug, info, warn or error", level)
	}
	log.SetLevel(parsed)
	return log, nil
}

// routeKlog sends what client-go logs through klog to log. klog is global, so only a main program should call it.
func routeKlog(log *logrus.Logger) {
	klog.SetLoggerWithOptions(logrusr.New(log.WithField("component", "client-go")), klog.ContextualLogger(true))
}
