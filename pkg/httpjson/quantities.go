package httpjson

import (
	"errors"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/globalreserve/globalreserve/pkg/resources"
)

// Quantities makes a decoder of pods that clients send read quantities by
// resources.ParseQuantity: Kubernetes' own parser takes seconds on some short
// texts.
var Quantities = json.UnmarshalFromFunc(func(dec *jsontext.Decoder, q *resource.Quantity) error {
	token, err := dec.ReadToken()
	if err != nil {
		return err
	}
	switch token.Kind() {
	case 'n':
		*q = resource.Quantity{}
		return nil
	case '"', '0':
		*q, err = resources.ParseQuantity(token.String())
		return err
	default:
		return errors.New("want a quantity such as \"500m\" or \"4Gi\"")
	}
})
