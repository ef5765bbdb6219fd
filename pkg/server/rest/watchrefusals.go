package rest

import (
	"net/http"
	"strconv"

	"github.com/globalreserve/globalreserve/pkg/httpjson"
	"github.com/globalreserve/globalreserve/pkg/reserver"
)

// refusalsAtOnce is how many refusals a watcher is told before it is told what has changed meanwhile.
const refusalsAtOnce = 256

// refusalFeed tells a watcher of refusals, if it asked for them. Refusals do not wait for watchers: a slow watcher
// misses some.
type refusalFeed struct {
	api    *API
	reader *reader
	after  uint64          // the number of the last one it was told
	wake   <-chan struct{} // nil where it has not asked
}

// feedRefusals makes a feed of what is refused from now on; end is to be called once.
func (a *API) feedRefusals(r *reader, wanted bool) (feed *refusalFeed, end func()) {
	feed = &refusalFeed{api: a, reader: r}
	if !wanted {
		return feed, func() {}
	}
	feed.wake, end = a.o.Waiting.SubscribeRefusals()
	_, feed.after = a.o.Waiting.RefusalsAfter(0)
	return feed, end
}

// tell tells some of what was refused since, and whether there was any.
func (f *refusalFeed) tell(s sink) bool {
	if f.wake == nil {
		return false
	}
	refusals, _ := f.api.o.Waiting.RefusalsAfter(f.after)
	refusals = refusals[:min(len(refusals), refusalsAtOnce)]
	for _, r := range refusals {
		f.after = r.Number
		told := f.reader.newRefusal(r)
		s.send(&reserver.Event{Type: reserver.RefusalEvent, Instance: f.api.instance, Time: told.Time, Refusal: &told})
	}
	if len(refusals) > 0 {
		s.flush()
	}
	return len(refusals) > 0
}

// wantsRefusals returns ?refusals=.
func wantsRefusals(r *http.Request) (bool, error) {
	text := r.URL.Query().Get("refusals")
	if text == "" {
		return false, nil
	}
	wanted, err := strconv.ParseBool(text)
	if err != nil {
		return false, badRequest("refusals \"%s\" is neither true nor false", httpjson.Clip(text))
	}
	return wanted, nil
}
