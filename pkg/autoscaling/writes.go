package autoscaling

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/globalreserve/globalreserve/pkg/metrics"
)

// A cluster may be full of reservations: writes are few each second, whatever there is to write.
const (
	writesPerSecond = 10
	writeBurst      = 20
	writeTimeout    = 10 * time.Second
	// againAfter is after how long a write that failed is tried again.
	againAfter = 10 * time.Second
	// servedFor is how long it is remembered that a namespace had its turn.
	servedFor = time.Hour
	// logEvery is how often the log says that writes fail.
	logEvery = time.Minute
)

// writes are the writes of one kind.
type writes struct {
	kind    string // of the objects
	metrics *metrics.Metrics
	limiter *rate.Limiter
	said    rate.Sometimes
	log     logrus.FieldLogger

	mu      sync.Mutex // guards what follows
	trouble error      // of the last write, nil where it was carried out
}

func newWrites(kind string, m *metrics.Metrics, log logrus.FieldLogger) *writes {
	return &writes{
		kind: kind, metrics: m, limiter: rate.NewLimiter(writesPerSecond, writeBurst),
		said: rate.Sometimes{Interval: logEvery}, log: log,
	}
}

// ended records how a write ended.
func (w *writes) ended(err error) {
	w.mu.Lock()
	w.trouble = nameless(err)
	w.mu.Unlock()
	w.metrics.ObserveAutoscalingWrite(w.kind, err != nil)
	if err != nil {
		w.said.Do(func() { w.log.WithError(err).Warn("a write for autoscalers failed; it will be tried again") })
	}
}

// settled records that nothing is to be written, so that what could not be written before is of no account any more.
func (w *writes) settled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trouble = nil
}

// nameless is what everybody may be told of an error, who may not know the names in it: /readyz asks nobody who he is.
func nameless(err error) error {
	if err == nil {
		return nil
	}
	reason, said := apierrors.ReasonForError(err), "the last write failed"
	if reason != metav1.StatusReasonUnknown {
		said += ": " + string(reason)
	}
	status := metav1.Status{Status: metav1.StatusFailure, Reason: reason, Message: said + "; the log tells more"}
	return &apierrors.StatusError{ErrStatus: status}
}

// Trouble returns why the last write failed, without names, nil where it was carried out.
func (w *writes) Trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}
