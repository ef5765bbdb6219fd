package rest

import (
	"cmp"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/julienschmidt/httprouter"

	"github.com/globalreserve/globalreserve/pkg/http/httpjson"
)

// maxQueryValue bounds a query parameter in bytes; names are shorter.
const maxQueryValue = 1024

// query has the parameters of a read, and its caller.
type query struct {
	url.Values
	*reader // who asks

	path httprouter.Params
}

// readQuery reads the parameters of a request. A parameter that is not among known, or
// comes twice, is an error: a filter that is silently not applied misleads.
func readQuery(r *http.Request, known ...string) (*query, error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query string cannot be read: %s", httpjson.Clip(err.Error()))
	}
	for name, list := range values {
		switch {
		case !slices.Contains(known, name):
			return nil, badRequest("the query parameter \"%s\" is not known: this path takes %s",
				httpjson.Clip(name), cmp.Or(strings.Join(known, ", "), "none"))
		case len(list) > 1:
			return nil, badRequest("the query parameter \"%s\" is given %d times: send it once", name, len(list))
		case len(list[0]) > maxQueryValue || !isPrintable(list[0]):
			return nil, badRequest("the query parameter \"%s\" is longer than %d bytes or has unprintable characters", name,
				maxQueryValue)
		}
	}
	return &query{Values: values, path: httprouter.ParamsFromContext(r.Context())}, nil
}

// has reports whether a parameter is absent, or has that value.
func (q *query) has(name, value string) bool { return q.Get(name) == "" || q.Get(name) == value }

// limit returns ?limit=, or the most there can be where there is none.
func (q *query) limit() (int, error) {
	text := cmp.Or(q.Get("limit"), strconv.Itoa(math.MaxInt))
	limit, err := strconv.Atoi(text)
	if err != nil || limit < 1 {
		return 0, badRequest("limit \"%s\" is not a whole number above 0", httpjson.Clip(text))
	}
	return limit, nil
}
