package httpjson

import (
	"net/http"
	"sync"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/lru"
)

const (
	// maxRate is how many requests one caller may send in each second, and maxBurst how many more at once after it has
	// sent fewer. kube-scheduler never reaches it: it filters one pod at a time, and asks at most four times for each.
	// The fastest known, without any extender, schedule 1,300 pods a second on 48 cores: 5,200 requests. One with an
	// extender on two cores sends 800.
	maxRate  = 8000
	maxBurst = 2 * maxRate
	// maxRated is how many callers have a rate of their own at one time. The one that was quiet for the longest time
	// begins anew where there are more.
	maxRated = 4096
)

var errRate = Errorf(http.StatusTooManyRequests,
	"you send more than %d requests a second: wait a second, and send fewer", maxRate)

// Rates bounds how much each caller asks for in a second.
type Rates struct {
	perSecond rate.Limit
	burst     int

	mu      sync.Mutex // guards callers
	callers *lru.Cache // of *rate.Limiter, by caller
}

// NewRates returns Rates of which no caller has used any yet.
func NewRates(perSecond, burst int) *Rates {
	return &Rates{perSecond: rate.Limit(perSecond), burst: burst, callers: lru.New(maxRated)}
}

// Take counts something that a caller asks for at a time, and reports whether it may.
func (r *Rates) Take(caller string, now time.Time) bool {
	r.mu.Lock()
	limiter, ok := r.callers.Get(caller)
	if !ok {
		limiter = rate.NewLimiter(r.perSecond, r.burst)
		r.callers.Add(caller, limiter)
	}
	r.mu.Unlock()
	return limiter.(*rate.Limiter).AllowN(now, 1)
}
