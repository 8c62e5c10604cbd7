module falaj/pause

go 1.26.0
