package autoscaling

import (
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/time/rate"
)

// A cluster may be full of reservations: writes are few each second, whatever there is to write.
const (
	writesPerSecond = 10
	writeBurst      = 20
	writeTimeout    = 10 * time.Second
	// againAfter is after how long a write that failed is tried again.
	againAfter = 10 * time.Second
	// logEvery is how often the log says that writes fail.
	logEvery = time.Minute
)

// writes are the writes of one kind.
type writes struct {
	limiter *rate.Limiter
	said    rate.Sometimes
	log     logrus.FieldLogger
	told    func(failed bool) // of every write

	mu      sync.Mutex // guards what follows
	trouble error      // of the last write, nil where it was carried out
}

func newWrites(log logrus.FieldLogger, told func(failed bool)) *writes {
	return &writes{
		limiter: rate.NewLimiter(writesPerSecond, writeBurst), said: rate.Sometimes{Interval: logEvery}, log: log, told: told,
	}
}

// ended records how a write ended.
func (w *writes) ended(err error) {
	w.mu.Lock()
	w.trouble = err
	w.mu.Unlock()
	w.told(err != nil)
	if err != nil {
		w.said.Do(func() { w.log.WithError(err).Warn("a write for autoscalers failed; it will be tried again") })
	}
}

// Trouble returns why the last write failed, nil where it was carried out.
func (w *writes) Trouble() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.trouble
}
